"""The small lexicon of the caption parser: senses of verbs, roles of prepositions, kinds of nouns.

Senses and arguments are PropBank's (its frames for AMR); a verb that is not listed has sense 01 and
its subject is ARG0. Only verbs that are frequent in captions and differ from that are listed.
"""

from __future__ import annotations

from augmentation.regions.closed_classes import FEMININE, MASCULINE
from captioning.text.entities import PEOPLE
from captioning.text.word_forms import NUMBER_WORDS

# Verbs of other senses than 01.
_SENSES = """
    run-02 jump-03 lie-07 lay-01 have-03 do-02 go-02 get-01 cover-02 cross-02 overlook-02 swing-01
    smoke-02 turn-01 reach-01 splash-01 pass-03 drive-01 dive-02 hang-01 carry-01 bark-01 hike-01
    chase-01 hold-01 wave-01 swim-01 ski-01 surf-01 bite-01 tie-01 pick-up-04 take-off-08
    put-on-08 look-up-05 hold-up-10 stick-out-02 shake-off-02 hang-out-06 dress-up-02 set-up-03
    line-up-02 grind-05 fish-01 bound-03 dance-01 touch-01 step-01 face-01 follow-02 lead-02
    point-01 race-02 lift-02 roll-01 speed-01 rest-01 fly-01 throw-01 kick-01 score-01
"""
SENSES = {word.rpartition("-")[0].replace("-", " "): word for word in _SENSES.split()}

# Verbs whose subject is ARG1: the object that sits, falls or floats.
_PATIENTS = """
    sit stand lie fall hang float leap rest wait come perch dangle swing stick lay appear emerge
    gather hang-out line-up slide bounce land shine surround grow burn drip flow blow dive pass
"""
SUBJECT_IS_ARG1 = frozenset(word.replace("-", " ") for word in _PATIENTS.split())

# Preposition phrases that are numbered arguments of a verb.
_ARGUMENTS = """
    look-at-1 look-into-1 look-through-1 look-over-1 look-for-1 stare-at-1 stare-into-1 gaze-at-1
    smile-at-2 smile-for-2 pose-for-2 wait-for-2 point-at-2 point-to-2 wave-at-2 wave-to-2
    talk-to-2 talk-with-2 talk-on-3 speak-to-2 speak-into-2 laugh-at-2 lean-on-2 lean-against-2
    lean-over-2 lean-into-2 chew-on-1 bite-on-1 nibble-on-1 pull-on-1 pull-at-1 tug-on-1 tug-at-1
    fight-over-2 fight-for-2 fight-with-1 wrestle-with-1 dress-in-2 dress-as-2 cover-in-2
    cover-with-2 play-with-2 jump-over-2 leap-over-3 hold-onto-1 hold-to-1 listen-to-1 sniff-at-1
    bark-at-2 attach-to-2 tie-to-2 swing-at-2 throw-at-2 throw-to-2 kick-at-1 paint-with-2
    fill-with-2
    surround-by-1 feed-to-2 attempt-at-1 participate-in-1 compete-in-1 chase-after-1 run-after-1
    work-on-1 paw-at-1 lick-at-1 give-to-2 show-to-2 hand-to-2 grab-at-1 reach-for-1 peer-at-1
    hit-with-2 hang-from-2 drink-from-2 eat-from-2 balance-on-2 interact-with-1 go-after-1
    come-after-1
"""
ARGUMENTS: dict[tuple[str, str], str] = {
    (verb, preposition): f"ARG{number}"
    for verb, preposition, number in (word.split("-") for word in _ARGUMENTS.split())
}
# Verbs whose agent ("by") or passive subject has an unusual role.
AGENT_ROLES = {"surround": "ARG1", "cover": "ARG0", "follow": "ARG0"}
PASSIVE_ROLES = {"surround": "ARG2"}

# Prepositions that AMR leaves out, and those that are nodes of their own.
PLAIN_PLACES = frozenset(("in", "on", "at", "upon", "atop", "within", "amid", "aboard"))
_RELATIVE = """
    near by beside behind under over above between among against around inside outside below
    beneath underneath amongst amidst beyond alongside next-to in-front-of on-top-of left-of
    right-of in-between close-to nearby opposite
"""
RELATIVE_PLACES = frozenset(word for word in _RELATIVE.split())
PATHS = frozenset(("through", "across", "along", "down", "up", "past", "over", "around"))
GOALS = frozenset(("into", "onto", "to"))
DIRECTIONS = frozenset(("toward", "towards"))
SOURCES = frozenset(("from", "off", "out", "out-of", "off-of"))
TIME_PREPOSITIONS = frozenset(("during", "after", "before", "while", "until", "whilst"))
# Prepositions of several words, which the parser attaches to each other.
COMPOUND_PREPOSITIONS = {
    ("next", "to"): "next-to", ("in", "front", "of"): "in-front-of", ("out", "of"): "out-of",
    ("on", "top", "of"): "on-top-of", ("in", "between"): "in-between", ("off", "of"): "off-of",
    ("to", "the", "left", "of"): "left-of", ("on", "the", "left", "of"): "left-of",
    ("to", "the", "right", "of"): "right-of", ("on", "the", "right", "of"): "right-of",
    ("left", "of"): "left-of", ("right", "of"): "right-of", ("close", "to"): "close-to",
    ("in", "the", "middle", "of"): "in-the-middle-of", ("inside", "of"): "inside",
    ("outside", "of"): "outside", ("at", "the", "edge", "of"): "at-the-edge-of",
    ("along", "side"): "alongside", ("along", "with"): "with", ("as", "well", "as"): "with",
    ("on", "the", "side", "of"): "on-the-side-of", ("with", "the", "help", "of"): "with",
    ("by", "the", "side", "of"): "beside", ("up", "to"): "to", ("onto",): "onto",
}  # fmt: skip
# Verbs of motion: "over", "around" and the like are paths, not places.
_MOTION = """
    run walk jump leap fly ride drive climb ski skate skateboard swim slide jog hike race bike
    cycle bicycle move go come travel crawl step wade roll speed sled snowboard bound hurdle
    march trot gallop stroll glide sail kayak paddle row dive fall flip throw toss kick surf
    rollerblade scooter parasail soar dash sprint hop skip wander head
"""
MOTION = frozenset(_MOTION.split())

# Colours are predicates, AMR 3's way: ":ARG1-of (r / red-02)".
_COLOURS = "red-02 white-03 black-04 blue-01 green-02 brown-01 yellow-02 purple-02 gray-02 tan-02"
COLOURS = {word[:-3]: word for word in _COLOURS.split()} | {"grey": "gray-02"}
_CLOTHES = """
    shirt t-shirt tshirt jacket coat hat cap dress suit uniform jersey shorts pants jeans trousers
    sweater sweatshirt hoodie vest outfit costume clothes clothing apparel attire gear bikini
    swimsuit trunk helmet glasses sunglasses goggles shoe boot sneaker sock glove scarf skirt
    robe gown blouse tank top tee overall jumpsuit wetsuit raincoat hood bandanna bandana headband
    belt tie apron pajamas kimono tuxedo sandal collar harness mask makeup wig leather denim plaid
    camouflage raingear garment turban headscarf veil cape leotard tutu underwear bra lingerie
    earring necklace backpack shawl beanie visor tights stocking suspenders garb headdress leash
    muzzle snowsuit poncho parka
"""
CLOTHES = frozenset(_CLOTHES.split()) | {"pant", "trouser", "jean", "short"}
_BODY = """
    arm leg hand foot head face hair eye mouth nose ear beard mustache moustache tail paw tongue
    tooth back neck shoulder finger lip chest stomach knee lap belly torso wing fur braid ponytail
    dreadlock mohawk goatee tattoo expression smile body thumb hip waist cheek fist toe leg
"""
BODY_PARTS = frozenset(_BODY.split())
_TIMES = "day night morning evening afternoon sunset dusk dawn time winter summer spring noon"
TIMES = frozenset(_TIMES.split())
_GROUPS = """
    group crowd team pair bunch pack herd flock row line class gang band crew family stack pile
    number couple set series variety collection
"""
GROUPS = frozenset(_GROUPS.split())
# "couple of dogs": a number, not an object.
QUANTITIES = frozenset(("couple", "lot", "lots", "number", "dozen", "variety", "dozens"))
_PIECES = """
    piece bit slice chunk strip stretch body bottle cup glass can bowl plate bag box tray basket
    pot bucket
"""
PIECES = frozenset(_PIECES.split())
_PEOPLE = """
    person people man woman boy girl child kid baby toddler guy lady male female adult teenager
    someone somebody one other player rider skier surfer skateboarder snowboarder skater biker
    cyclist bicyclist runner jogger swimmer climber hiker worker officer soldier cowboy clown
    dancer singer musician drummer guitarist actor artist chef cook waiter doctor nurse teacher
    student friend couple mother father mom dad son daughter brother sister bride groom crowd
    group team family spectator onlooker fan audience individual gentleman youth infant teen
    motorcyclist wakeboarder racer driver pedestrian golfer goalie pitcher batter quarterback
    performer referee coach fisherman policeman fireman businessman tourist diver kayaker rafter
    farmer photographer
    climber waitress musician juggler magician guard swimmer teammate opponent tourist sailor
"""
PEOPLE_WORDS = frozenset(_PEOPLE.split()) | PEOPLE | MASCULINE | FEMININE
_ANIMALS = """
    dog puppy cat kitten horse pony bird duck goose seagull animal cow bull sheep goat lamb pig
    monkey bear elephant squirrel rabbit fish poodle greyhound bulldog retriever shepherd beagle
    terrier collie labrador lab husky pup canine dalmatian chihuahua dachshund boxer parrot swan
"""
ANIMALS = frozenset(_ANIMALS.split())
# Possessive pronouns by personal pronoun.
POSSESSIVES = {"he": "his", "she": "her", "it": "its", "they": "their"}
# Words whose meaning depends on the context, not on the photo.
NUMBERS = {word: str(number) for word, number in NUMBER_WORDS.items()}
QUANTIFIERS = frozenset(("some", "several", "many", "few", "both", "all", "various", "multiple"))
# The usual preposition of each role, in the order of the roles in a sentence.
ROLE_PREPOSITIONS = {
    "ARG2": "", "ARG3": "", "ARG4": "", "direction": "", "source": "from", "destination": "to",
    "path": "along", "location": "in", "instrument": "with", "accompanier": "with",
    "manner": "", "mod": "", "purpose": "for", "topic": "about", "time": "during",
}  # fmt: skip
ADVERB_ROLES = ("direction", "mod", "manner", "location", "ARG2", "time")
POINTERS = frozenset(("another", "other", "this", "that", "these", "those", "each", "every"))


def concept_of(verb: str) -> str:
    """Label of a verb with its particle: ``"take-off-08"`` for ``"take off"``."""
    return SENSES.get(verb) or f"{verb.replace(' ', '-')}-01"


def subject_role(verb: str) -> str:
    """Argument role of the subject of an active verb."""
    return "ARG1" if verb in SUBJECT_IS_ARG1 else "ARG0"


def is_living(noun: str) -> bool:
    """Return whether a noun names a person or an animal."""
    return noun in PEOPLE_WORDS or noun in ANIMALS or noun.endswith(("boarder", "skater"))
