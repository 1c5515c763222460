"""The small vocabulary that the embedded benchmarks share: names, things, colours, jobs, animals, foods.

Short common words, so that a tokenizer of two thousand pieces spells nearly each of them in one or two tokens.
"""

from __future__ import annotations

NAMES = (
    "Amy", "Anna", "Ben", "Bill", "Cara", "Carl", "Clara", "Dan", "David", "Ella",
    "Emma", "Eric", "Eva", "Finn", "Fred", "Grace", "Hana", "Henry", "Iris", "Ivan",
    "Jack", "Jane", "Kate", "Leo", "Lily", "Lucy", "Mark", "Mia", "Nina", "Noah",
    "Omar", "Oscar", "Paul", "Rosa", "Ruth", "Sam", "Sara", "Tom", "Will", "Zoe",
)  # fmt: skip

PLURALS = {
    "apple": "apples", "badge": "badges", "ball": "balls", "bead": "beads", "book": "books", "button": "buttons",
    "card": "cards", "coin": "coins", "cup": "cups", "flower": "flowers", "hat": "hats", "key": "keys",
    "lamp": "lamps", "marble": "marbles", "nut": "nuts", "orange": "oranges", "pen": "pens", "photo": "photos",
    "plate": "plates", "shell": "shells", "stamp": "stamps", "sticker": "stickers", "stone": "stones", "toy": "toys",
}  # fmt: skip
"""Things that a person can own, count, give away and lose."""

COLOURS = ("black", "blue", "brown", "gold", "green", "grey", "orange", "pink", "purple", "red", "white", "yellow")

JOBS = (
    "actor", "artist", "baker", "cook", "doctor", "driver", "farmer", "nurse", "painter", "pilot",
    "sailor", "singer", "teacher", "writer",
)  # fmt: skip

ANIMALS = (
    "bear", "bird", "cat", "cow", "deer", "dog", "duck", "fish", "fox", "goat",
    "horse", "lion", "owl", "rabbit", "sheep", "wolf",
)  # fmt: skip

FOODS = (
    "bread", "butter", "cake", "cheese", "corn", "eggs", "fruit", "honey", "milk", "pie",
    "rice", "salad", "soup", "tea",
)  # fmt: skip

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
