"""Conversations that a model with a chat template reads for calibration.

None of them is among the conversations on which a bundle is compared with its Keras model.
"""

ANSWERED: tuple[tuple[str, ...], ...] = (
    (
        "Why do leaves change their colour in autumn?",
        "In autumn, trees stop making the green pigment that they use to catch light. As it fades, the yellow and "
        "orange pigments that were there all summer become visible. Some trees also make red ones from sugar "
        "that is left in the leaves.",
    ),
    (
        "How do I cook rice?",
        "1. Rinse the rice until the water is clear.\n2. Put one cup of rice and two cups of water into a pot.\n"
        "3. Bring it to a boil, cover it and turn the heat down.\n4. Wait for 15 minutes, then let it rest for five.",
    ),
    (
        "Write a Python function that counts the vowels in a word.",
        'Here it is:\n\n```python\ndef vowels(word):\n    return sum(letter in "aeiou" for letter in word.lower())\n'
        '```\n\nFor example, `vowels("Keras")` returns 2.',
    ),
    ("What is 7 times 8?", "7 times 8 is 56.", "And divided by 4?", "56 divided by 4 is 14."),
    (
        "Who was Marie Curie?",
        "Marie Curie (1867-1934) was a physicist and chemist, born in Warsaw, who worked in Paris. She discovered "
        "polonium and radium, and received the Nobel Prize in Physics in 1903 and in Chemistry in 1911.",
    ),
    (
        "Give me three names for a coffee shop.",
        "Here are three ideas:\n\n- The Morning Cup\n- Bean & Leaf\n- Corner Roast",
        "Which one do you like best?",
        'I would choose "Corner Roast": it is short, easy to remember, and says what people will find there.',
    ),
    (
        "Correct this sentence: He go to school every days.",
        "He goes to school every day.",
    ),
    (
        "Write a short message to my landlord. The heating does not work.",
        "Subject: Heating in apartment 12\n\nDear Ms. Brown,\n\nThe heating in my apartment has not worked since "
        "Monday. Could you please send somebody to repair it this week? I am at home on weekdays after five.\n\nBest "
        "regards,\nSam Taylor",
    ),
    (
        "What is the difference between weather and climate?",
        "Weather is what happens in the atmosphere at a certain time and place, such as rain this afternoon. Climate "
        "is the average of the weather in a region over many years.",
    ),
    (
        "Tell me a story about a cat, in four sentences.",
        "Mila was a small grey cat who lived above a bakery. Every night she watched the baker carry his trays to the "
        "oven. One night the oven caught fire, and Mila cried so loudly that the whole street woke up. Since then, a "
        "bowl of cream has stood beside the door every morning.",
    ),
    (
        "Is this review positive or negative? The room was dirty and the staff were rude.",
        "The review is negative: it complains about the dirty room and about the rude staff.",
    ),
    (
        "Translate into French: The house is near the river.",
        "La maison est près de la rivière.",
        "And into German?",
        "Das Haus liegt in der Nähe des Flusses.",
    ),
    (
        "I want to sleep better. What can I do?",
        "Go to bed at the same time every day, keep the room dark and cool, and avoid coffee after noon. It also helps "
        "to put your phone away an hour before you go to bed.",
        "Thanks! Is it good to do sports in the evening?",
        "Light exercise such as a walk is fine. Hard training is better earlier in the day, since it keeps the body "
        "awake for some hours.",
    ),
    (
        "Summarize: The council met on Tuesday. It decided to build a new bridge for pedestrians. Work will start in "
        "May and take two years. The costs are 3.5 million euros.",
        "The council decided to build a bridge for pedestrians for 3.5 million euros, from May on, within two years.",
    ),
    (
        "What does HTML stand for?",
        "HTML stands for HyperText Markup Language. It describes the structure of web pages.",
    ),
    (
        "Name the planets, from the sun outwards.",
        "Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune.",
    ),
)
"""Messages of a user and answers of an assistant in turn."""
