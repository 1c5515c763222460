"""Two more conversations of mini_chat: a shopping list, a trip. Written as in `scenes`."""

from __future__ import annotations

from models.train.texts.scenes import Ask, Scene, later

SHOPPING = Scene(
    facts={"count_a": "number", "count_b": "number", "ware_a": "ware", "ware_b": "ware", "food": "food", "more": "few"},
    derive=lambda facts: {
        "total": str(int(facts["count_a"]) + int(facts["count_b"])),
        "more_a": str(int(facts["count_a"]) + int(facts["more"])),
    },
    tells=(
        "I need to go to the shop. I want to buy {count_a} {ware_a}, {count_b} {ware_b} and some {food}.",
        "My shopping list for today is this: {count_a} {ware_a}, {count_b} {ware_b} and {food}. Please keep it for "
        "me.",
        "Please remember my list. I must buy {count_a} {ware_a} and {count_b} {ware_b}. I also need {food}.",
        "I am on my way to the shop. I will buy {count_a} {ware_a}, {count_b} {ware_b} and also {food}.",
    ),
    acks=(
        "[Your|The|This] list [is|has|says] {count_a} {ware_a}, {count_b} {ware_b} and {food}.",
        "You [want|need|will buy|have to buy] {count_a} {ware_a}, {count_b} {ware_b} and some {food}.",
        "[So|Now|Then|All right, so|Good, so] you will buy {count_a} {ware_a} and {count_b} {ware_b}[, and| and|; "
        "and] also {food}.",
        "I will [remember|keep|note|hold on to] {count_a} {ware_a}, {count_b} {ware_b} and {food}.",
    ),
    closers=("", "", " Do you need more?", " I will keep the list for you.", " Is that all?"),
    asks=(
        Ask(
            (
                "How many {ware_b} do I need?",
                "Tell me the number of {ware_b}, please.",
                "I forgot how many {ware_b} to buy.",
            ),
            (
                "You [need|want|must buy|should buy] {count_b} {ware_b}.",
                "[Your|The|This] list [says|has|is] {count_b} {ware_b}.",
                "[Please|Then|Now|So] buy {count_b} {ware_b}.",
            ),
        ),
        Ask(
            (
                "How many {ware_a} must I buy?",
                "Do you know the number of {ware_a}?",
                "I forgot how many {ware_a} to buy.",
            ),
            (
                "You [need|want|must buy|should buy] {count_a} {ware_a}.",
                "[Your|The|This] list [says|has|is] {count_a} {ware_a}.",
                "[Please|Then|Now|So] buy {count_a} {ware_a}.",
            ),
        ),
        Ask(
            ("How many {ware_a} and {ware_b} is that in all?", "How many are the {ware_a} and {ware_b} together?"),
            (
                "[Together|In all|So|Now] that [makes|is|gives] {total}.",
                "[That|This|It] [is|must be|will be] {total} [in all|in total|together].",
                "You [will have|have|get] {total} of them [in all|in total|together].",
            ),
        ),
        Ask(
            (
                "I need {more} more {ware_a}. How many is that now?",
                "Please add {more} {ware_a}. How many do I buy now?",
            ),
            (
                "[Now|Then|So|With that] you [need|want|must buy|should buy] {more_a} {ware_a}.",
                "[That|This|It] [makes|is|gives] {more_a} {ware_a}.",
                "You will now buy {more_a} {ware_a}.",
            ),
        ),
        Ask(
            (
                "I have the {ware_a} and the {ware_b}. What is still missing?",
                "I bought the {ware_b} and the {ware_a}. What else?",
            ),
            (
                "You [still|now|only|just] need {food}.",
                "[Only|Just] the {food} is missing.",
                "Now you [only|just] [have|need] to buy {food}.",
            ),
        ),
    ),
)

TRAVEL = Scene(
    facts={"city_a": "city", "city_b": "city", "day": "day", "hour": "number", "stay": "few", "name": "name"},
    derive=lambda facts: {
        "back": later(facts["day"], int(facts["stay"])),
        "arrival": str(int(facts["hour"]) + int(facts["stay"])),
    },
    tells=(
        "I will take the train from {city_a} to {city_b} on {day} at {hour} o'clock. I want to visit {name} there.",
        "On {day} I go from {city_a} to {city_b} to see my friend {name}. The train leaves at {hour} o'clock.",
        "My train leaves {city_a} at {hour} o'clock on {day}. It goes to {city_b}, where {name} lives.",
        "I plan a trip to see {name}. I leave {city_a} for {city_b} on {day}, and the train goes at {hour} o'clock.",
    ),
    acks=(
        "[Your|The|This] train goes from {city_a} to {city_b} on {day} at {hour} o'clock[, and|; and|, while|. "
        "Also,] you [visit|see|meet|will visit] {name}.",
        "[So|Now|Then|All right, so|Good, so] you [leave|will leave|want to leave] {city_a} on {day} at {hour} "
        "o'clock and go to {city_b} to [see|visit|meet] {name}.",
        "You [will visit|will see|will meet|visit] {name}[, and|; and|, while|. Also,] the train from {city_a} to "
        "{city_b} [leaves|starts|goes] at {hour} o'clock on {day}.",
        "On {day} at {hour} o'clock you [take|will take|have] the train from {city_a} to {city_b} to "
        "[see|visit|meet] {name}.",
    ),
    closers=("", "", " Have a good trip!", " That sounds like a nice trip.", " How can I help you?"),
    asks=(
        Ask(
            (
                "I stay for {stay} days. On which day do I come back?",
                "After {stay} days I will go home. Which day is that?",
            ),
            (
                "You [come|are|will be|will come] back on {back}.",
                "[That|This|It] [will be|is|must be] {back}.",
                "[Then|So|Now] you [go|come|are|will be] home on {back}.",
            ),
        ),
        Ask(
            (
                "The trip takes {stay} hours. When do I arrive?",
                "I will be on the train for {stay} hours. When am I there?",
            ),
            (
                "You [arrive|are there|will arrive|will be there] at {arrival} o'clock.",
                "You [will be|are|should be] there at {arrival} o'clock.",
                "At {arrival} o'clock you [are|will be|should be] there.",
            ),
        ),
        Ask(
            (
                "Where do I go, and who do I visit?",
                "Tell me again where I go and who lives there.",
                "Who do I see, and in which city?",
            ),
            (
                "You [go|travel|want to go|will go] to {city_b} to [see|visit|meet] {name}.",
                "You [visit|see|meet|will visit] {name} in {city_b}.",
                "[Your|This|That|The] friend {name} is in {city_b}.",
            ),
        ),
        Ask(
            ("When does my train leave, and from where?", "Where does the train start, and at what time?"),
            (
                "[Your|The|This] train [leaves|starts from|goes from] {city_a} at {hour} o'clock.",
                "It [leaves|starts|goes] at {hour} o'clock from {city_a}.",
                "[The|Your|This] train [starts|begins] in {city_a} at {hour} o'clock.",
            ),
        ),
    ),
)
