"""The news of mini_sum as plain data: events, asides and summaries.

A name in braces is a fact drawn from a pool. An article has the `lines` of its event in order, with `asides` inserted
that no summary mentions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from models.train.texts.phrase import Wordings
from models.train.texts.scenes import POOLS as WORD_POOLS

POOLS: Mapping[str, Wordings] = {
    "city": WORD_POOLS["city"],
    "name": WORD_POOLS["name"],
    "day": WORD_POOLS["day"],
    "place": WORD_POOLS["place"],
    "house": ("library", "museum", "school", "station", "theatre"),
    "colour": WORD_POOLS["colour"],
    "pet": WORD_POOLS["pet"],
    "few": tuple("2345678"),
    "some": tuple(str(number) for number in range(12, 60)),
    "many": tuple(str(number) for number in range(120, 900, 10)),
    "team": ("Lions", "Bears", "Wolves", "Eagles", "Sharks", "Stars"),
    "goods": ("rings", "coins", "watches", "phones", "lamps"),
    "music": ("dances", "films", "plays", "puppets"),
    "danger": ("river", "lake", "harbour", "pond"),
}


@dataclass(frozen=True)
class Event:
    """One kind of news. Each line and each summary sentence is a choice of wordings."""

    facts: Mapping[str, str]
    lines: tuple[Wordings, ...]
    asides: Wordings
    summary: tuple[Wordings, ...]


ASIDES = (
    "The sky was grey all day.",
    "Many people took photos with their phones.",
    "The shops near by were full.",
    "A small dog ran through the street.",
    "Some children had a free day.",
    "The radio talked about it in the evening.",
    "The buses were late, as they often are.",
    "A man sold tea and cake to the people.",
    "The old clock on the square stood still.",
    "It had been a quiet week before.",
)

STORM = Event(
    facts={
        "city": "city",
        "day": "day",
        "houses": "some",
        "hurt": "few",
        "place": "house",
        "back": "day",
        "who": "name",
        "old": "some",
    },
    lines=(
        (
            "A strong storm came to {city} on {day}.",
            "On {day} a strong storm hit {city}.",
            "{city} had a strong storm on {day}.",
        ),
        ("The wind began in the morning and grew all day.", "It began with rain, and then the wind grew strong."),
        ("The wind broke the roofs of {houses} houses.", "In the city {houses} houses lost their roofs."),
        ("{hurt} people were taken to the hospital.", "Doctors had to help {hurt} people who were hurt."),
        ("The {place} lost its windows and had to close.", "Water ran into the {place}, so it was closed."),
        ("It will open again on {back}.", "The doors will open again on {back}."),
        ('"I have never seen so much wind," said {who}.', '"It was so loud that I could not sleep," {who} said.'),
    ),
    asides=("A storm {old} years ago was even worse.", "Trees lay on the road.", "Some streets had no light at night."),
    summary=(
        (
            "[A|The|One] [storm|strong storm|big storm|bad storm] [damaged|hit|broke|hurt] {houses} [houses|homes] "
            "in {city} on {day}.",
            "[On|Last|This] {day} [a|the|one] [storm|strong storm|big storm|bad storm] in {city} "
            "[damaged|hit|broke|hurt] {houses} [houses|homes].",
        ),
        (
            "[|In all |Also, ]{hurt} people [were|got|are] hurt.",
            "[The storm|The wind|It|That] [hurt|also hurt] {hurt} people.",
            "[There were|There are|It left|This left] {hurt} people hurt.",
        ),
        (
            "[The|Its|Now the|Also, the] {place} [is|stays|will be|remains] [closed|shut] until {back}.",
            "[The|Its|Now the|Also, the] {place} [stays|is|will be|remains] [closed|shut] until {back}.",
        ),
    ),
)

MATCH = Event(
    facts={
        "home": "team",
        "guest": "team",
        "city": "city",
        "day": "day",
        "high": "few",
        "fans": "many",
        "star": "name",
        "coach": "name",
        "goals": "few",
        "old": "some",
    },
    lines=(
        (
            "The {home} played against the {guest} in {city} on {day}.",
            "On {day} the {home} met the {guest} in {city}.",
        ),
        (
            "{fans} fans came to see the game.",
            "The game was watched by {fans} fans.",
            "There were {fans} fans in the seats.",
        ),
        ("The first half was slow, and there were no goals.", "For a long time nobody scored."),
        ("Then {star} scored for the {home}.", "After the break {star} scored first for the {home}."),
        (
            "In the end the {home} had {high} goals and the {guest} had 1.",
            "The game ended {high} to 1 for the {home}.",
        ),
        (
            "{star} scored {goals} times in the last {old} games.",
            "It was a great day for {star}, who is {old} years old.",
        ),
        (
            '"We worked hard for this," said their coach {coach}.',
            '"My team was very good today," coach {coach} said.',
        ),
    ),
    asides=("Last year the {guest} had won.", "The grass was wet from the rain.", "The fans sang until late at night."),
    summary=(
        (
            "[The|Now the|So the|At last the] {home} [beat|stopped|won against|were better than] the {guest} {high} "
            "to 1 in {city} on {day}.",
            "[On|Last|This] {day} the {home} [won|ended|finished|played] {high} to 1 against the {guest} in {city}.",
        ),
        (
            "{star} [scored|made|got|had] the [first|opening] goal in front of {fans} [fans|people|friends].",
            "The [first|opening] goal [came from|was made by|was scored by] {star}[, and|; and|, while] {fans} "
            "[fans|people] [were there|came|watched|were in the seats].",
        ),
    ),
)

OPENING = Event(
    facts={
        "place": "house",
        "city": "city",
        "day": "day",
        "who": "name",
        "cost": "some",
        "years": "few",
        "guests": "many",
        "visitor": "name",
        "old": "some",
    },
    lines=(
        ("{city} has a new {place}.", "The people of {city} are happy about a new {place}."),
        ("It opened its doors on {day}.", "The doors were opened for the first time on {day}."),
        ("The workers needed {years} years to build it.", "It took {years} years to build it all."),
        ("All in all it cost {cost} million.", "The city paid {cost} million for it."),
        (
            "{who}, the head of the {place}, gave a short talk.",
            "First {who}, who leads the {place}, said a few words.",
        ),
        ("{guests} people came on the first day.", "On the first day {guests} people went in."),
        ('"It is so bright and big," said {visitor}.', '"I will come here every week," {visitor} said.'),
    ),
    asides=("The old one was {old} years old.", "There was free cake for all.", "The walls are white and blue."),
    summary=(
        (
            "[A|The|One|Its] [new|big new|bright new|great new] {place} [opened|was opened|started] in {city} on "
            "{day}.",
            "[On|Last|This] {day} {city} [opened|got|was given|started] [a|its|the] [new|big new|bright new|great "
            "new] {place}.",
        ),
        (
            "[It|This|The work|The place] [took|needed] {years} years and [cost|took|needed] {cost} million.",
            "[It|This|The place] [cost|took|needed] {cost} million and [took|needed] {years} years to "
            "[build|make|finish].",
        ),
        (
            "[|Then |In all |Already ]{guests} people [visited|saw|came to see|went into] it on the [first|opening] "
            "day.",
            "On the [first|opening] day it [had|got|saw] {guests} [visitors|guests|people].",
        ),
    ),
)

RESCUE = Event(
    facts={
        "saved": "name",
        "hero": "name",
        "pet": "pet",
        "danger": "danger",
        "city": "city",
        "day": "day",
        "age": "some",
        "hours": "few",
        "doctor": "name",
    },
    lines=(
        (
            "{saved}, who is {age} years old, went for a walk near {city} on {day}.",
            "On {day} {saved}, {age} years old, took a walk near {city}.",
        ),
        ("It was dark, and {saved} fell into the {danger}.", "On the way {saved} fell into a {danger}."),
        ("Nobody heard the calls for {hours} hours.", "For {hours} hours nobody came by."),
        ("Then {hero} passed with a {pet}.", "At last {hero} came along with a {pet}."),
        ("The {pet} stopped and made a lot of noise.", "The {pet} heard the calls and would not go on."),
        ("{hero} took a long rope and pulled {saved} out.", "With a rope {hero} pulled {saved} out of the {danger}."),
        ('"{saved} is cold but well," said doctor {doctor}.', 'Doctor {doctor} said: "{saved} can go home soon."'),
    ),
    asides=("The road there has no lights.", "The water was cold and deep.", "The {pet} was given a big dinner."),
    summary=(
        (
            "{hero} [saved|pulled|took|got] {saved} [from|out of] [a|the] {danger} [near|by] {city} on {day}.",
            "[On|Last|This] {day} {hero} [pulled|saved|took|got] {saved} [out of|from] [a|the] {danger} [near|by] "
            "{city}.",
        ),
        (
            "[A|The|One|Then a] {pet} [heard|noticed|followed] the [calls|cries] [after|in] {hours} hours.",
            "[After|In] {hours} hours [a|the|one] {pet} [found|came to|got to|noticed] the [place|spot].",
        ),
        (
            "{saved}, {age}, is [well|now well|fine|safe].",
            "{saved} is {age} [years old|years of age] and [is|feels|will be] [well|fine|safe].",
        ),
    ),
)

ELECTION = Event(
    facts={
        "winner": "name",
        "loser": "name",
        "city": "city",
        "day": "day",
        "votes": "many",
        "years": "few",
        "plan": "place",
        "voter": "name",
        "old": "some",
    },
    lines=(
        (
            "The people of {city} voted on {day}.",
            "On {day} there was a vote in {city}.",
            "{city} had a vote on {day}.",
        ),
        ("They had to choose between {winner} and {loser}.", "{loser} and {winner} both wanted to lead the city."),
        ("In the morning {loser} was ahead.", "At first it looked good for {loser}."),
        ("But late at night it was clear that {winner} had more votes.", "In the end more people were for {winner}."),
        ("{winner} won by {votes} votes.", "There were {votes} votes between the two."),
        ("{winner} will lead the city for {years} years.", "The new head of the city will stay for {years} years."),
        ("The first plan is to build a new {plan}.", "{winner} wants to build a new {plan} first."),
        ('"I hope that things get better now," said {voter}.', '"It was time for a change," {voter} said.'),
    ),
    asides=("The last vote was close too.", "Some people stood in line for {old} minutes.", "{loser} went home early."),
    summary=(
        (
            "{winner} [won|took|got] the [vote|race] in {city} on {day} [by|with] {votes} [votes|more votes].",
            "[On|Last|This] {day} {winner} [beat|won against|stopped|passed] {loser} in {city} [by|with] "
            "{votes} [votes|more votes].",
        ),
        (
            "{winner} [will|is to|shall|is going to] [lead|run|head] the [city|town] for {years} years and "
            "[plans|wants|will build|will open] [a|one] new {plan}.",
            "For {years} years {winner} [will|is to|shall|is going to] [lead|run|head] {city}[, and|; and|, while] a "
            "new {plan} is [planned|wanted|to come|to be built].",
        ),
    ),
)

ROBBERY = Event(
    facts={
        "place": "place",
        "city": "city",
        "day": "day",
        "count": "some",
        "goods": "goods",
        "men": "few",
        "colour": "colour",
        "witness": "name",
        "officer": "name",
        "old": "some",
    },
    lines=(
        (
            "Thieves came to a shop near the {place} in {city} on {day}.",
            "On {day} thieves went into a shop near the {place} in {city}.",
        ),
        ("It was late at night, and the street was empty.", "It was early in the morning, and nobody was there."),
        ("There were {men} of them, all with hats.", "{men} people were in the group, and all wore hats."),
        ("They broke a window and took {count} {goods}.", "They took {count} {goods} out of a box and ran away."),
        (
            "{witness}, who lives next door, saw a {colour} car.",
            "A {colour} car was seen by {witness}, who lives near by.",
        ),
        ("It drove away very fast.", "The car drove off with no lights."),
        (
            '"We will find them soon," said {officer} of the police.',
            'The police are looking for them. "We need help," said {officer}.',
        ),
    ),
    asides=("The shop is {old} years old.", "The owner was on a trip.", "It was cold on that night."),
    summary=(
        (
            "{men} [thieves|people] [stole|took|got|ran off with] {count} {goods} [from|in|out of] a [shop|store] in "
            "{city} on {day}.",
            "[On|Last|This] {day} {men} [thieves|people] [took|stole|got|ran off with] {count} {goods} "
            "[from|in|out of] a [shop|store] in {city}.",
        ),
        (
            "{witness} [saw|watched|noticed] [them|the thieves|the group] [leave|drive off|go|drive away] in "
            "[a|their|one] {colour} car.",
            "[They|All|The thieves|The group] [left|drove off|went|drove away] in [a|their|one] {colour} car, as "
            "{witness} [saw|said|told|noticed].",
        ),
        (
            "[The police|Police|Now police|The city police] [are looking|look|now look] for [them|the thieves|the "
            "group].",
            "[The police|Police|Now police|The city police] [want|hope|plan] to [find|get|catch] [them|the "
            "thieves|the group] [soon|fast].",
        ),
    ),
)

FESTIVAL = Event(
    facts={
        "city": "city",
        "day": "day",
        "guests": "many",
        "groups": "some",
        "music": "music",
        "place": "house",
        "star": "name",
        "host": "name",
        "nights": "few",
        "old": "some",
    },
    lines=(
        ("The summer festival in {city} began on {day}.", "On {day} the summer festival of {city} began."),
        ("It takes place in front of the {place}.", "You can find it in the street by the {place}."),
        ("{guests} people came on the first night.", "On the first night there were {guests} people."),
        ("{groups} groups from many lands show their {music}.", "There are {music} by {groups} groups."),
        ("The prize for the best of them went to {star}.", "{star} was given the prize for the best one."),
        ("The festival goes on for {nights} nights.", "There are {nights} more nights to come."),
        ('"This is the best week of the year," said {host}.', '"We are so happy that it did not rain," {host} said.'),
    ),
    asides=(
        "Last year only {old} people came.",
        "The food is from all over the world.",
        "You can hear it from far away.",
    ),
    summary=(
        (
            "[A|The|One|This] [summer|big summer|great summer] festival [began|opened|started] in {city} on {day} "
            "with {guests} [people|guests|visitors].",
            "[On|Last|This] {day} {guests} [people|guests|visitors] [came|went] to [the|a] [summer|big "
            "summer|great summer] festival [in|of] {city}.",
        ),
        (
            "[|There |In all ]{groups} [groups|teams] [show|have|bring] {music}[, and|; and|, while] {star} "
            "[won|got|took|was given] the prize.",
            "{star} [won|got|took|was given] the prize[, and|; and|, while] {groups} [groups|teams] "
            "[show|have|bring] {music}.",
        ),
        (
            "[It|This|That|All this] [lasts|takes|runs] {nights} [nights|evenings].",
            "[It|This|That|All this] [goes on|lasts|will last|runs] for {nights} [nights|evenings].",
        ),
    ),
)

EVENTS = (STORM, MATCH, OPENING, RESCUE, ELECTION, ROBBERY, FESTIVAL)
