"""Actions of objects: the icon of each, and its verb in three forms."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Action that an image can show.

    Attributes:
        verbs: ``(third person, plain, -ing)`` forms, most usual first; the last may stand alone.
        icon: icon that shows the action; None: the class's own icon.
        mark: mark drawn beside the object: ``"speed"``, ``"sleep"``, ``"jump"`` or ``""``.
        zone: place of the action; None: the class's own.
        places: the only places where the action happens; empty: any place.
        roles: nouns for a person who does it, such as "skier", which imply the action.
        scale: height of the action's icon as a share of the class's icon.
    """

    verbs: tuple[tuple[str, str, str], ...]
    icon: str | None = None
    mark: str = ""
    zone: str | None = None
    places: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    scale: float = 1.0


def _verbs(*rows: str) -> tuple[tuple[str, str, str], ...]:
    forms = []
    for row in rows:
        third, plain, ing = (part.strip() for part in row.split("/"))
        forms.append((third, plain, ing))
    return tuple(forms)


SNOW = ("snow", "mountains")
DRY = ("beach", "city", "forest", "desert", "mountains", "meadow", "farm", "snow")

ACTIONS: dict[str, Action] = {
    "standing": Action(verbs=_verbs("stands/stand/standing")),
    "sitting": Action(verbs=_verbs("sits/sit/sitting")),
    "lying": Action(verbs=_verbs("lies/lie/lying", "rests/rest/resting")),
    "perched": Action(verbs=_verbs("stands/stand/standing", "perches/perch/perching")),
    "resting": Action(verbs=_verbs("lies/lie/lying", "sits/sit/sitting")),
    "grazing": Action(verbs=_verbs("grazes/graze/grazing", "eats/eat/eating")),
    "running": Action(
        verbs=_verbs("runs/run/running", "races/race/racing"), mark="speed",
        roles=("runner", "jogger"),
    ),
    "jumping": Action(verbs=_verbs("jumps/jump/jumping", "leaps/leap/leaping"), mark="jump"),
    "bouncing": Action(verbs=_verbs("bounces/bounce/bouncing"), mark="jump"),
    "sleeping": Action(
        verbs=_verbs("sleeps/sleep/sleeping", "naps/nap/napping"), mark="sleep",
    ),
    "cheering": Action(
        verbs=_verbs("cheers/cheer/cheering", "waves/wave/waving",
                     "stands with raised arms/stand with raised arms/standing with raised arms"),
    ),
    "walking": Action(
        verbs=_verbs("walks/walk/walking", "strolls/stroll/strolling"), icon="person-walking",
    ),
    "hiking": Action(
        verbs=_verbs("hikes/hike/hiking", "walks with a backpack/walk with a backpack/"
                     "walking with a backpack"),
        icon="person-hiking", roles=("hiker",),
        places=("forest", "desert", "mountains", "meadow", "snow"),
    ),
    "cycling": Action(
        verbs=_verbs("rides a bike/ride a bike/riding a bike",
                     "rides a bicycle/ride a bicycle/riding a bicycle",
                     "cycles/cycle/cycling"),
        icon="person-biking", roles=("cyclist",), places=DRY[:-1],
    ),
    "digging": Action(
        verbs=_verbs("digs/dig/digging", "shovels/shovel/shoveling"), icon="person-digging",
        places=("beach", "farm", "desert", "snow", "forest", "meadow"), roles=("worker",),
    ),
    "kneeling": Action(
        verbs=_verbs("kneels/kneel/kneeling", "prays/pray/praying"), icon="person-praying",
        scale=0.85,
    ),
    "falling": Action(
        verbs=_verbs("falls/fall/falling", "slips/slip/slipping"), icon="person-falling",
    ),
    "skating": Action(
        verbs=_verbs("skates/skate/skating"), icon="person-skating", roles=("skater",),
        places=("city", "snow"),
    ),
    "skiing": Action(
        verbs=_verbs("skis/ski/skiing"), icon="person-skiing", places=SNOW, roles=("skier",),
    ),
    "snowboarding": Action(
        verbs=_verbs("snowboards/snowboard/snowboarding"), icon="person-snowboarding",
        places=SNOW, roles=("snowboarder",),
    ),
    "luggage": Action(
        verbs=_verbs("pulls a suitcase/pull a suitcase/pulling a suitcase",
                     "walks with a suitcase/walk with a suitcase/walking with a suitcase"),
        icon="person-walking-luggage", roles=("traveler",),
    ),
    "cane": Action(
        verbs=_verbs("walks with a cane/walk with a cane/walking with a cane",
                     "leans on a cane/lean on a cane/leaning on a cane"),
        icon="person-cane",
    ),
    "swimming": Action(
        verbs=_verbs("swims/swim/swimming"), icon=None, zone="water", places=("lake",),
        roles=("swimmer",), scale=1.0,
    ),
    "flying": Action(verbs=_verbs("flies/fly/flying", "soars/soar/soaring"), zone="sky"),
    "floating": Action(verbs=_verbs("floats/float/floating", "comes down/come down/coming down"),
                       zone="sky"),
    "sailing": Action(verbs=_verbs("sails/sail/sailing", "floats/float/floating"), zone="water"),
    "parked": Action(verbs=_verbs("is parked/are parked/parked")),
    "driving": Action(verbs=_verbs("drives/drive/driving", "speeds/speed/speeding"), mark="speed"),
}  # fmt: skip

ICONS = {("person", "running"): "person-running", ("person", "swimming"): "person-swimming"}
SCALES = {("person", "swimming"): 0.55}
