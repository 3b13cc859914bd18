"""Texts that are difficult for tokenizers, and a corpus for training tiny vocabularies."""

from __future__ import annotations

# Lewis Carroll, "Alice's Adventures in Wonderland" (1865), public domain; the other lines are made up.
CORPUS = [
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do:",
    "once or twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it,",
    '"and what is the use of a book," thought Alice "without pictures or conversations?"',
    "So she was considering in her own mind (as well as she could, for the hot day made her feel very sleepy and",
    "stupid), whether the pleasure of making a daisy-chain would be worth the trouble of getting up and picking the",
    "daisies, when suddenly a White Rabbit with pink eyes ran close by her.",
    "There was nothing so very remarkable in that; nor did Alice think it so very much out of the way to hear the",
    'Rabbit say to itself, "Oh dear! Oh dear! I shall be late!"',
    "Die Straße führt über die Brücke, während die Vögel im Garten singen. Où est le café, s'il vous plaît?",
    "Привет, как дела? Сегодня хорошая погода. Γειά σου κόσμε. 今日は天気がいいです。 안녕하세요 세계",
    "0 1 2 3 4 5 6 7 8 9 10 100 1,000 3.14 https://example.com/page?id=42 def f(x): return x**2 # ok",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
]

TEXTS = [
    "Alice was tired of the Rabbit!",
    "",
    "   ",
    "  two  spaces\tand tab\nnewline\r\n end  ",
    "Über naïve cafés, ÀÉÎÕÜ",
    "e\u0301 combining a\u0308\u0323 n\u0303",
    "emoji 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ❤️ done 🙂",
    "今日は天気 测试。한국어 안녕",
    "Привет κόσμε العربية שלום हिन्दी ไทย",
    "control \x00\x01\x07\x1b chars \u200b\u200d\ufeff\u00a0\u3000x",
    "don't I'll we've 's ``quoted'' ''x'' 2,000, 9,",
    "a real \ufffd character",
    "İstanbul ıSTANBUL ǅ ﬁ ① ２",
    "x" * 300,
    "the Rabbit said " * 200,
    "[MASK] <mask> </s> <extra_id_5> <|endoftext|> [CLS] <pad> a",
    "a\u2028b\u2029c\x85d",
    "def f(x):\n    return x**2  # ok",
    "\U0010ffff \ud7ff \ue000",
]
