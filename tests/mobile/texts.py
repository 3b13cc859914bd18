"""Texts for the vectors of all languages: a sentence in each of many scripts, and texts that are hard to tokenize."""

from __future__ import annotations

SCRIPTS = {
    "Latin": "Zażółć gęślą jaźń; Ångström, naïve, œuvre, ĳs, ŁÓDŹ.",
    "Greek": "Ο καιρός είναι καλός, ΣΟΦΟΣ ὅς ᾳ.",
    "Cyrillic": "Ёжик пьёт чай, її їжак, Ўзбек.",
    "Armenian": "Բարեւ աշխարհ, և այսօր արև է։",
    "Georgian": "გამარჯობა მსოფლიო, ᲗᲑᲘᲚᲘᲡᲘ.",
    "Hebrew": "שָׁלוֹם עוֹלָם, מה נשמע?",
    "Arabic": "مَرْحَبًا بالعالم، كيف ٱلحال؟ ١٢٣",
    "Persian": "می‌خواهم کتاب بخوانم ۴۵۶",
    "Syriac": "ܫܠܡܐ ܥܠܡܐ",
    "Thaana": "ހެލޯ ދުނިޔެ",
    "Devanagari": "नमस्ते दुनिया, क़िताब हिन्दी १२",
    "Bengali": "ওহে বিশ্ব, আমি ভালো আছি।",
    "Gurmukhi": "ਸਤ ਸ੍ਰੀ ਅਕਾਲ ਦੁਨੀਆ",
    "Gujarati": "નમસ્તે દુનિયા, કેમ છો?",
    "Oriya": "ନମସ୍କାର ଦୁନିଆ",
    "Tamil": "வணக்கம் உலகம், நலமா?",
    "Telugu": "నమస్కారం ప్రపంచం",
    "Kannada": "ನಮಸ್ಕಾರ ಪ್ರಪಂಚ",
    "Malayalam": "നമസ്കാരം ലോകം, സുഖമാണോ?",
    "Sinhala": "ආයුබෝවන් ලෝකය",
    "Thai": "สวัสดีชาวโลก น้ำใจ",
    "Lao": "ສະບາຍດີຊາວໂລກ",
    "Tibetan": "བཀྲ་ཤིས་བདེ་ལེགས།",
    "Myanmar": "မင်္ဂလာပါ ကမ္ဘာလောက",
    "Khmer": "សួស្ដីពិភពលោក",
    "Ethiopic": "ሰላም ዓለም፣ እንዴት ነህ፧",
    "Cherokee": "ᎣᏏᏲ ᎡᎶᎯ ꭳꮟ",
    "Canadian": "ᐊᐃᓐᖓᐃ ᓄᓇᕐᔪᐊᖅ",
    "Mongolian": "ᠰᠠᠶᠢᠨ ᠪᠠᠶᠢᠨ᠎ᠠ",
    "Tifinagh": "ⴰⵣⵓⵍ ⴰⵎⴰⴹⴰⵍ",
    "N'Ko": "ߊߟߎ߫ ߣߌ߫ ߛߐ߬ߜߐ߫ߡߊ߬",
    "Han": "今天天气很好，我们去公园吧。繁體中文〇豈",
    "Japanese": "今日はいい天気です。ｶﾞｷﾞグ ヴァ々ー",
    "Hangul": "안녕하세요 세계, 각 ㄱㅏ",
    "Yi": "ꆈꌠꉙ ꀀꁌ",
    "Gothic": "𐌲𐌿𐍄𐌹𐍃𐌺 𐍂𐌰𐌶𐌳𐌰",
    "Deseret": "𐐔𐐯𐑅𐐨𐑉𐐯𐐻 𐐼",
    "Adlam": "𞤀𞤣𞤤𞤢𞤥 𞥁",
    "Mathematical": "𝐇𝐞𝐥𝐥𝐨 𝔴𝔬𝔯𝔩𝔡 𝟙𝟚 ℕ ∑≠√",
}
"""A sentence, or a few words, in each script."""

SHORT = (
    "A plain sentence, and another one.",
    "",
    " ",
    "  two  spaces,\ta tab\nand  a line\r\n at the end  ",
    "The café was naïve: ÀÉÎÕÜ, e\u0301 a\u0308\u0323 n\u0303o",
    "İstanbul ıI ǅ, ΟΔΟΣ ς, die Straße ẞ",
    "emoji 👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ❤️ 🏴󠁧󠁢󠁳󠁣󠁴󠁿 1️⃣ 🙂done",
    "今日は天気。测试，好！한국어 안녕",
    "שלום العربية हिन्दी ไทย Привет мир",
    "control \x00\x01\x07\x1b\x7f\x9f chars \u200b\u200d\ufeff\u00a0\u3000x \u00ad\u2060",
    "I'm don't we'LL it's ``so'' ''said'' y’all'd, 's .",
    "1234567 3.14 1,000 ½ x² ２ ① ﬁ ™ Ⅳ ㎏",
    "a_b-c/d\\e|f#g@h$i%j^k&l*m(n)o{p}q[r]s<t>u~v`w=x+y;z",
    "https://example.org/a?b=c&d=1 x@y.z !!! ... ?!",
    "def f(x):\n    return x**2  # ok\n\n\n\tpass",
    "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg",
    "a real \ufffd character, \U0010ffff \ud7ff \ue000",
    "▁a ▁▁b Ġc ##d </w>e @@f <0x41> Ċ",
    "ab\u0300\u0301\u0302\u0303\u0304\u0305c Z\u0351\u036bA\u0334\u0321L",
)
"""Texts that reveal different rules, for every tokenizer."""

LONG = (
    "supercalifragilistic" * 6,
    "x" * 60,
    "早" * 20,
    "the rain said " * 8,
)
"""Very long words, and a longer text."""

NEW = (
    "a\u1ac3\u0323 x\u0301\u1ac1\u0323b \u0e38\u1ac3 a\u0323\u1ae3 c\u0301\u1ae8\u0323",
    "\U00020000x \U0001e949y a\u2e52b \u0890z \uac00\u1acd\u11a8 \U0001e030\ua7f2 \u0661\u0662\xb2",
)
"""Marks, punctuation and others that are newer than some tables of Unicode, and Chinese characters beyond U+FFFF."""

STREAMED = (SHORT[3], SHORT[6], SHORT[10], SHORT[17], SCRIPTS["Tamil"], SCRIPTS["Gothic"])
"""Texts whose pieces of a stream are written down."""

SPLIT = ("one|two, three||four,|five", "|", ",,a|", "the rabbit said| nothing ,at all", "")
"""Texts for tokenizers that split at `|` and `,`."""

SPACED = (
    "the  man said\n\nthe \t end ",
    " üx 日本 🙂, the\u3000rain\u00a0at[SEP][SEP]the",
    "a[UNK] ü\n b",
    "\x1c the\x1cend",
)
"""Texts for tokenizers whose words white space separates."""


CORPUS = (
    "The rain in the garden was warm, and the old man said that he would not go home before the evening.",
    "A plain sentence and another sentence; the rabbit said nothing, nothing at all, and the others said nothing.",
    "They were reading the book, singing and thinking: what is the use of a book without pictures or conversations?",
    "He asked who was there. Nobody answered, although it was raining and the street was empty until the morning.",
    "Die Straße führt über die Brücke, während die Vögel im Garten singen. Où est le café, s'il vous plaît?",
    "Привет, как дела? Сегодня хорошая погода, а вчера был дождь. Γειά σου κόσμε, καλός καιρός.",
    "今日はいい天気です。今天天气很好。안녕하세요 세계 안녕",
    "नमस्ते दुनिया हिन्दी שלום עולם مرحبا بالعالم สวัสดีชาวโลก",
    "0 1 2 3 4 5 6 7 8 9 10 100 1,000 3.14 https://example.com/page?id=42 def f(x): return x**2 # ok",
    "I'm sure we don't know what it's worth; they'll say so, 'tis true, and you've said it's not.",
    "🙂 👍 ❤️ 👩‍👩‍👧 🇩🇪",
)
"""Sentences that the vocabularies are counted from; other scripts and characters are unknown to most of them."""

ALL = (*SHORT, *SCRIPTS.values(), *LONG)

PAIRS = (
    ("Who said nothing?", "The rabbit said nothing at all."),
    ("", "an empty first text"),
    ("an empty second text", ""),
    ("emoji 🙂 and ΣΟΦΟΣ", "今日は e\u0301 日"),
)
