"""Word lists (closed classes) of words that only look like objects or attributes.

Lists of object classes and taggers count all of these as nouns or adjectives; swapping them makes
captions that mean nothing ("in windshield of a house"). The CutSwap thesis (Hahn, 2022, section
4.4.2) shows next, same and another among its failures and leaves them to CLIP.
"""

from __future__ import annotations

_NOT_ATTRIBUTES = """
    next same another other such own more most many several few less much various different multiple
    numerous single only certain similar else extra additional further previous overall main entire
    whole half first second third last final one two three four five
    front back side left right top bottom upper lower middle rear inner outer nearby close far near
    able available due like unlike alike respective apparent favorite ready unable busy aware
"""
_BOUND_ADJECTIVES = """
    sized haired colored coloured aged skinned shaped looking handed sleeved legged faced eyed like
    type style old-looking bodied footed headed toned winged tailed
"""
_NOT_OBJECTS = """
    front back side top bottom middle end edge inside outside background foreground center corner
    air area view scene picture image photo photograph shot way part place spot position distance
    direction range surface layer plain half number numeral variety type kind sort design shape
    color date time day night morning afternoon weather season trick game match action practice
    step stop stand circle set case base name word letter symbol something someone one drink jump
    ride run walk wear smile look meal line row cover couple event fun matter world lot
    figure item object product structure
"""
_AMOUNTS = """
    group couple pair bunch lot crowd team row line herd flock pack pile stack number set variety
    piece slice body cloud series collection kind sort type assortment dozen hundred bit handful
    mass gathering crew gang family class stream spray patch cup glass plate
"""
_MASCULINE = """
    man boy guy gentleman father dad son brother husband groom policeman fireman king grandfather
    uncle cowboy fisherman businessman snowman male groomsman grandpa
"""
_FEMININE = """
    woman girl lady mother mom daughter sister wife bride queen grandmother aunt ballerina
    bridesmaid cheerleader waitress female grandma
"""
_PLAIN_COLOURS = """
    aqua beige black blond blonde blue brown brunette burgundy colored colorful coloured colourful
    crimson cyan gray green grey indigo magenta maroon mauve multicolored multicoloured navy purple
    red scarlet tan teal turquoise white yellow
"""
# Colours that are also nouns: an orange, ice cream.
_THING_COLOURS = """
    amber bronze cream gold golden ivory khaki lavender lime olive orange peach pink rose silver
    violet
"""

# Adjectives that say which or how many, not what an object looks like: they are not removed and
# are never given to another object.
NOT_ATTRIBUTES = frozenset(_NOT_ATTRIBUTES.split())
# Ends of adjectives that mean nothing without their beginnings: "brown haired", "medium sized".
BOUND_ADJECTIVES = frozenset(_BOUND_ADJECTIVES.split())
# Nouns for parts of a place, for pictures, times and events.
NOT_OBJECTS = frozenset(_NOT_OBJECTS.split())
# Amounts of something when "of" follows: no group can be cut out of "a group of people".
AMOUNTS = frozenset(_AMOUNTS.split())
# Nouns that "his" and "her" agree with.
MASCULINE = frozenset(_MASCULINE.split())
FEMININE = frozenset(_FEMININE.split())
MASCULINE_PRONOUNS = frozenset(("he", "him", "his", "himself"))
FEMININE_PRONOUNS = frozenset(("she", "her", "hers", "herself"))
# Determiners before nouns that can be counted.
COUNT_DETERMINERS = frozenset(("a", "an", "one", "another", "each", "every", "either"))
# Adjectives that lists of classes join to nouns: "little girl", "young man".
SIZES_AND_AGES = frozenset(("little", "big", "small", "large", "young", "old"))
# Determiners that a mass noun may have.
MASS_DETERMINERS = frozenset(("all", "some", "much", "any"))
PLAIN_COLOURS = frozenset(_PLAIN_COLOURS.split())
THING_COLOURS = frozenset(_THING_COLOURS.split())
COLOURS = PLAIN_COLOURS | THING_COLOURS
# Words that join attributes.
CONNECTORS = frozenset(("and", "or", ",", "but", "&"))
