"""The texts on which tokenizers are compared: real ones in many languages, code and JSON, and made ones that are hard to tokenize.
Imported by tokenizer_fixtures.py; the same seed gives the same texts."""

import json
import pathlib
import random
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Public-domain texts: article 1 of the Universal Declaration of Human Rights, opening lines of old books, old poems.
PROSE = """
All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience and should act towards one another in a spirit of brotherhood.
Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de conscience et doivent agir les uns envers les autres dans un esprit de fraternité.
Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und sollen einander im Geiste der Brüderlichkeit begegnen.
Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón y conciencia, deben comportarse fraternalmente los unos con los otros.
Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão e de consciência, devem agir uns para com os outros em espírito de fraternidade.
Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione e di coscienza e devono agire gli uni verso gli altri in spirito di fratellanza.
Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa.
Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a svědomím a mají spolu jednat v duchu bratrství.
Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler.
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. Mọi con người đều được tạo hóa ban cho lý trí và lương tâm.
Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью и должны поступать в отношении друг друга в духе братства.
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. Είναι προικισμένοι με λογική και συνείδηση.
يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميرًا وعليهم أن يعامل بعضهم بعضًا بروح الإخاء.
כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון, לפיכך חובה עליהם לנהוג איש ברעהו ברוח של אחווה.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है।
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ
すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 양심을 부여받았으며 서로 형제애의 정신으로 행동하여야 한다.
人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。
人人生而自由,在尊嚴和權利上一律平等。他們賦有理性和良心,並應以兄弟關係的精神互相對待。
床前明月光，疑是地上霜。举头望明月，低头思故乡。
白日依山尽，黄河入海流。欲穷千里目，更上一层楼。
学而时习之，不亦说乎？有朋自远方来，不亦乐乎？人不知而不愠，不亦君子乎？
道可道，非常道。名可名，非常名。无名天地之始；有名万物之母。
话说天下大势，分久必合，合久必分：周末七国分争，并入于秦。
春はあけぼの。やうやう白くなりゆく山ぎは、少し明かりて、紫だちたる雲の細くたなびきたる。
いろはにほへと ちりぬるを わかよたれそ つねならむ うゐのおくやま けふこえて あさきゆめみし ゑひもせす
It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.
Call me Ishmael. Some years ago—never mind how long precisely—having little or no money in my purse, and nothing particular to interest me on shore, I thought I would sail about a little.
"Oh, you can't help that," said the Cat: "we're all mad here. I'm mad. You're mad." "How do you know I'm mad?" said Alice. "You must be," said the Cat, "or you wouldn't have come here."
It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it was the epoch of belief, it was the epoch of incredulity...
When in the Course of human events, it becomes necessary for one people to dissolve the political bands which have connected them with another, they've got to say why; that's 1776's point.
En un lugar de la Mancha, de cuyo nombre no quiero acordarme, no ha mucho tiempo que vivía un hidalgo de los de lanza en astillero, adarga antigua, rocín flaco y galgo corredor.
Gallia est omnis divisa in partes tres, quarum unam incolunt Belgae, aliam Aquitani, tertiam qui ipsorum lingua Celtae, nostra Galli appellantur.
Habe nun, ach! Philosophie, Juristerei und Medizin, und leider auch Theologie durchaus studiert, mit heißem Bemühn. Da steh ich nun, ich armer Tor! Und bin so klug als wie zuvor.
Мой дядя самых честных правил, когда не в шутку занемог, он уважать себя заставил и лучше выдумать не мог.
Μῆνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος οὐλομένην, ἣ μυρί᾽ Ἀχαιοῖς ἄλγε᾽ ἔθηκε.
""".strip().split("\n")

CHINESE = ("今天 天气 很好 我们 去 公园 散步 吧 请 计算 下面 的 数学 题 一共 有 多少 个 苹果 每 小时 速度 公里 机器 学习 模型 训练 数据 集 语言 "
           "人工 智能 上海 北京 龍 門 國 學 繁體 字 她 说 ： “ 你好 ” 。 ， ！ ？ 《 》 （ ） 、 ； 三 百 二十 ３ ５ ２０２４ 年 月 日 "
           "𠮷 㐀 〇 々 ㍿ ① Ⅷ ％ ￥").split()
EMOJI = ["😀", "😂🤣", "👍🏽", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇨🇳", "1️⃣", "#️⃣", "❤️", "❤", "☃", "🫠", "🪿", "👁️‍🗨️", "🧑🏿‍🚀", "©️", "™", "⏱", "🀄", "🂡", "𝓗𝓮𝓵𝓵𝓸", "Ⓐ"]
SPACES = ["\t", "\n", "\x0b", "\x0c", "\r", "\r\n", "\x1c", "\x1d", "\x1e", "\x1f", " ", "\x85", "\xa0", "\u1680", "\u2000", "\u2003", "\u2007", "\u2009",
          "\u200a", "\u200b", "\u200c", "\u200d", "\u2028", "\u2029", "\u202f", "\u205f", "\u2060", "\u3000", "\u180e", "\ufeff", "  ", "   ", "\n\n", "\t\t"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|vision_pad|>", "<tool_call>", "</tool_call>", "<tool_response>",
            "</tool_response>", "<think>", "</think>", "<|fim_prefix|>", "<|repo_name|>", "<|file_sep|>", "<repo_name>", "<reponame>", "<file_sep>",
            "<filename>", "<gh_stars>", "<issue_start>", "<jupyter_code>", "<empty_output>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'vE", "'M", "'LL", "'lL", "'D", "'ſ", "’s", "’ll", "'", "''", "'r", "'v", "'l",
                "'xs", "'é", "ʼs", "'K", "'st", "'ss", "'dd"]
WORDS = ["don", "we", "it", "I", "they", "the", "über", "naïve", "café", "x", "Straße", "ÀÉÎ", "ﬁne", "ǅ", "İstanbul", "ıI", "ſharp", "data_set", "camelCase", "HTTPServer"]


def split_into(text, low, high, draw):
    pieces = []
    while text:
        cut = draw.randint(low, high)
        pieces.append(text[:cut])
        text = text[cut:]
    return pieces


def prose(draw, count):
    texts = list(PROSE)
    while len(texts) < count:
        line = draw.choice(PROSE)
        begin = draw.randrange(len(line))
        texts.append(line[begin : begin + draw.randint(1, 120)])
    return texts


def code(draw, count):
    """Lines of the project's own headers, scripts and data, alone and in blocks with their indentation."""
    lines = []
    for folder, pattern in (("include/lora/core", "*.hpp"), ("include/lora/io", "**/*.hpp"), ("tests/make", "*.py"), ("examples/data", "*.json")):
        for path in sorted((ROOT / folder).glob(pattern)):
            if path.name != "unicode_tables.hpp":
                lines += path.read_text().split("\n")[:400]
    texts = []
    while len(texts) < count:
        begin = draw.randrange(len(lines))
        texts.append("\n".join(lines[begin : begin + draw.choice([1, 1, 1, 2, 4])])[:240])
    return texts


def json_text(draw, count):
    def value(depth):
        kind = draw.randrange(7 if depth < 3 else 4)
        if kind == 0:
            return draw.choice([True, False, None])
        if kind == 1:
            return draw.choice([0, -1, 3.14159, 1e-9, 12345678901234567890, 2**31, -0.5])
        if kind < 4:
            return draw.choice(WORDS + CHINESE + EMOJI + ["", "a\nb", 'say "hi"', "\\", "\u0000"])
        if kind == 4:
            return [value(depth + 1) for _ in range(draw.randrange(4))]
        return {draw.choice(WORDS) + str(i): value(depth + 1) for i in range(draw.randrange(4))}

    return [json.dumps([value(0), value(1)], ensure_ascii=draw.random() < 0.3, indent=draw.choice([None, None, 2, 4]))[:300] for _ in range(count)]


def mixed(draw, count, *parts, least=1, most=12):
    return ["".join(draw.choice(draw.choice(parts)) for _ in range(draw.randint(least, most))) for _ in range(count)]


def look_alikes(draw, count):
    texts = []
    for _ in range(count):
        pieces = []
        for _ in range(draw.randint(1, 6)):
            token = draw.choice(SPECIALS)
            change = draw.randrange(9)
            at = draw.randrange(len(token) + 1)
            if change == 0:
                token = token[:at] + token[at + 1 :]
            elif change == 1:
                token = token[:at] + draw.choice([" ", "|", "<", ">", "\u200b", "\u0301", "é"]) + token[at:]
            elif change == 2:
                token = token.upper()
            elif change == 3:
                token = token[:at] + token
            elif change == 4:
                token = token.replace("|", "｜")
            pieces.append(token)
            pieces.append(draw.choice(["", "", " ", "\n", "user\n", "a", ".", "  ", "1", "<", "|", "\u0338"]))
        texts.append("".join(pieces))
    return texts


def numbers(draw, count):
    digits = "0123456789" * 4 + "٠١٢३४५６７８²³¹½¼ⅫⅣ①⑳㉑〇〡𝟘𝟙𝟡𐄇𞥐"
    parts = ["".join(draw.choice(digits) for _ in range(draw.randint(1, 9))) for _ in range(300)]
    return mixed(draw, count, parts, [" ", ".", ",", "-", "e", "%", "$", "x", "  ", "\n", "万", "km/h", "'s"], most=10)


def marks(draw, count):
    """What normal form C changes: marks out of order, decomposed letters, Hangul in parts, excluded and singleton compositions."""
    assigned = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"]
    combining = [c for c in assigned if unicodedata.combining(c)]
    decomposing = [c for c in assigned if unicodedata.decomposition(c) and not unicodedata.decomposition(c).startswith("<")]
    hangul = [chr(c) for c in range(0x1100, 0x1113)] + [chr(c) for c in range(0x1161, 0x1176)] + [chr(c) for c in range(0x11A7, 0x11C3)]
    common = [chr(c) for c in list(range(0x300, 0x315)) + [0x323, 0x327, 0x328, 0x338, 0x345, 0x3099, 0x309A, 0x653, 0x654, 0x93C, 0x9BE, 0xDCA, 0x1133A, 0x11727]]
    letters = list("aeiouAEIOUnscyα ωשかカ") + ["\u0995\u09c7", "\u0dd9", "\u1025", "\u05d0", "\u0627", "\u0915"]
    texts = []
    for _ in range(count):
        kind = draw.randrange(4)
        pool = [[letters, common], [letters, combining, common], [hangul, list("가각힣a")], [decomposing, combining, letters]][kind]
        texts.append("".join(draw.choice(draw.choice(pool)) for _ in range(draw.randint(1, 14))))
    texts += [unicodedata.normalize("NFD", line) for line in PROSE]
    return texts


def all_planes(draw, count):
    """Code points of every plane, drawn by block so that small scripts come as often as large ones. Unassigned ones apart."""
    blocks = {}
    for c in range(0x110000):
        if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn":
            blocks.setdefault(c >> 6 if c < 0x20000 else c >> 10, []).append(chr(c))
    keys = sorted(blocks)
    texts = []
    for _ in range(count):
        near = draw.random() < 0.5  # a word of one script
        key, text = draw.choice(keys), []
        for _ in range(draw.randint(1, 10)):
            text.append(draw.choice(blocks[key if near else draw.choice(keys)]))
            if draw.random() < 0.15:
                text.append(draw.choice([" ", "\n", "a", "'s", "1", "  "]))
        texts.append("".join(text))
    return texts


def long_runs(draw):
    """Words of thousands of bytes."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["a" * 3000, " " * 2000 + "x", "\n" * 500, "=" * 1000, "ab" * 400, "".join(draw.choice(letters) for _ in range(2000)),
            "".join(draw.choice("的一是不了人我在有他这中大来上国个到说们") for _ in range(400)), "é" * 300, "e\u0301" * 300, "0" * 500, "😀" * 200,
            "".join(draw.choice(PROSE[28].replace(" ", "")) for _ in range(1500)), "\u0301" * 200, "'" * 100, "<|im_start|>" * 50]


def all_texts():
    draw = random.Random(20240607)
    controls = [chr(c) for c in list(range(0x20)) + list(range(0x7F, 0xA0))]
    texts = ["", " ", "\n", "a", " a", "  a", "\r\n", "\u0000", "\ufffd", "\u10ffff", "é", "e\u0301"]
    texts += prose(draw, 500)
    texts += code(draw, 500)
    texts += json_text(draw, 250)
    texts += mixed(draw, 400, CHINESE, CHINESE, CHINESE, [" ", "\n", "abc", "2"], most=16)
    texts += mixed(draw, 250, EMOJI, WORDS, [" ", "", "!"])
    texts += mixed(draw, 600, SPACES, SPACES, WORDS, ["1", ".", "", "中", "'s", "!!"])
    texts += mixed(draw, 300, controls, controls, SPACES, WORDS)
    texts += mixed(draw, 400, WORDS, CONTRACTIONS, [" ", "", ""])
    texts += look_alikes(draw, 500)
    texts += numbers(draw, 300)
    texts += marks(draw, 700)
    texts += all_planes(draw, 1300)
    texts += mixed(draw, 250, list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"), ["  ", "\n", "\n\n", "\r", " "], WORDS, most=20)
    texts += long_runs(draw)
    return texts
