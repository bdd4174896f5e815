"""Words for planted faults: substitutes for words, and made-up details."""

from __future__ import annotations

COLORS = (
    (
        *("red", "blue", "green", "yellow", "orange", "purple", "pink", "brown"),
        *("black", "white", "gray", "grey"),
    ),
)

NUMBERS = (("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),)

# Within a row any word can stand for any other; the same columns hold the plurals.
_OBJECTS = (
    "dog cat horse cow sheep bird elephant giraffe zebra bear monkey duck",
    "car bus truck motorcycle bicycle train boat airplane tractor helicopter",
    "bike skateboard surfboard scooter snowboard sled",
    "man woman",
    "boy girl",
    "men women",
    "shirt jacket sweater coat dress vest",
    "hat helmet cap scarf",
    "ball frisbee kite balloon umbrella",
    "pizza sandwich cake banana apple hamburger carrot",
    "table chair couch bed bench desk",
    "beach street field mountain forest kitchen bathroom office",
    "tree rock bush fence bridge tower",
    "guitar piano drum violin trumpet",
    "cup bottle plate bowl knife fork spoon",
    "phone laptop camera television keyboard clock",
)
_PLURALS = (
    "dogs cats horses cows birds elephants giraffes zebras bears monkeys ducks",
    "cars buses trucks motorcycles bicycles trains boats airplanes tractors helicopters",
    "bikes skateboards surfboards scooters snowboards sleds",
    "boys girls",
    "shirts jackets sweaters coats dresses vests",
    "hats helmets caps scarves",
    "balls frisbees kites balloons umbrellas",
    "pizzas sandwiches cakes bananas apples hamburgers carrots",
    "tables chairs couches beds benches desks",
    "trees rocks bushes fences bridges towers",
    "guitars pianos drums violins trumpets",
    "cups bottles plates bowls knives forks spoons",
    "phones laptops cameras televisions keyboards clocks",
)
OBJECTS = tuple(tuple(row.split()) for row in (*_OBJECTS, *_PLURALS))

# Words that mean the same: a replacement by one of them would be no fault.
SYNONYMS = ({"gray", "grey"}, {"bicycle", "bike"}, {"bicycles", "bikes"})

DETAILS = (
    "with a long row of parked cars standing in the far background",
    "while several people behind them are talking about the weather",
    "under a wide sky that is covered with thin clouds",
    "next to an old brick building with many small windows",
    "as a small flag moves slowly in the afternoon wind",
    "near a wooden sign on which something is written in large letters",
    "and on the left side a stone path leads toward some trees",
    "with a number of empty bottles lying on the ground nearby",
    "while a white van is waiting at the corner of the street",
    "and behind all of this there is a tall metal fence",
    "in what seems to be the late morning of a warm summer day",
    "with soft light falling from the right onto everything in view",
    "as if somebody had just called out from a short distance",
    "and a pair of sunglasses rests on a low wall close by",
    "which looks as though it had been painted only a few days ago",
    "while a large shadow covers the lower part of the picture",
)
