#include "lora/io/formats/yaml.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lora/io/files/file.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace yaml_test {

using namespace lora;
using namespace lora::io;

namespace {

std::string said_of(std::string_view text) {
  return test::message_of<Error>([&] { (void)parse_yaml(text, "r.yaml"); });
}

}  // namespace

TEST_CASE("yaml: numbers are decimals, with or without a dot before the exponent, and only where all readers agree") {
  for (const auto& pair : {std::pair{"1e-4", "1e-4"},
                           {"1.0e-4", "1.0e-4"},
                           {"2E5", "2e5"},
                           {"-3", "-3"},
                           {"+3", "3"},
                           {"1_000", "1000"},
                           {"0", "0"},
                           {"-0", "-0"},
                           {".5", "0.5"},
                           {"5.", "5.0"},
                           {"-.5e+2", "-0.5e+2"},
                           {"00.5", "0.5"},
                           {"0.10", "0.10"}}) {
    CAPTURE(pair.first);
    CHECK(yaml_number(pair.first) == std::optional<std::string>(pair.second));
  }
  for (const char* text : {"",     "+",    "-",   ".",  "e5", "1e",  "1e+", "010",  "-08", "0x1F",  "0o7",  "1:30",
                           ".inf", ".nan", "nan", "1 ", " 1", "1,5", "_1",  "1e5.", "--1", "1.2.3", "2e-5x"}) {
    CAPTURE(text);
    CHECK_FALSE(yaml_number(text));
  }
}

TEST_CASE("yaml: true and false have the words of YAML 1.1, and none in quotes") {
  const auto flag = [](const char* text, bool plain = true) {
    return yaml_flag({.kind = YamlNode::Kind::scalar, .text = text, .plain = plain});
  };
  for (const char* word : {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}) CHECK(flag(word) == true);
  for (const char* word : {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
    CHECK(flag(word) == false);
  for (const char* word : {"tRUE", "y", "n", "1", "", "oN", "none"}) CHECK_FALSE(flag(word));
  CHECK_FALSE(flag("true", false));
  CHECK_FALSE(yaml_flag({}));
}

TEST_CASE("yaml: a file is read by a regular reader of files") {
  const test::TempFolder folder;
  CHECK_THROWS_AS((void)read_yaml(folder / "none.yaml"), IoError);
  const Path file = folder / "large.yaml";
  write_file(file, std::string(yaml_file_limit + 1, '#'));
  CHECK(test::holds(test::message_of<IoError>([&] { (void)read_yaml(file); }),
                    "it is longer than 262144 bytes, the most that such a file may have"));
}

TEST_CASE("yaml: what is no text is refused with its place, before it is parsed") {
  CHECK(said_of("a: 1\nb: \xFF\n") == "r.yaml:2:4: found bytes that are no UTF-8, expected UTF-8");
  CHECK(said_of(std::string_view("a: 1\nb: \0 2\n", 12)) ==
        "r.yaml:2:4: found the control character \\x00, expected a text");
  // Which the parser takes for the end of the file.
  CHECK(said_of("a: 1\n\x04\nb: 2") == "r.yaml:2:1: found the control character \\x04, expected a text");
  CHECK(said_of("a: \x7F") == "r.yaml:1:4: found the control character \\x7F, expected a text");
  CHECK(said_of(std::string(yaml_file_limit + 1, '#')) ==
        "r.yaml: it is longer than 262144 bytes, the most that a file of settings in YAML may have");
}

#if defined(LORA_WITH_YAML)

namespace {

/// A node in one line: scalars in ' ' or, where they are in quotes or blocks, in " ".
std::string text_of(const YamlNode& node) {
  std::string text;
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "null";
    case YamlNode::Kind::scalar:
      return node.plain ? "'" + node.text + "'" : "\"" + node.text + "\"";
    case YamlNode::Kind::list:
      for (const YamlNode& value : node.values) text += (text.empty() ? "" : " ") + text_of(value);
      return "[" + text + "]";
    case YamlNode::Kind::map:
      REQUIRE(node.keys.size() == node.values.size());
      for (std::size_t i = 0; i < node.keys.size(); ++i)
        text += (text.empty() ? "" : " ") + node.keys[i].name + ":" + text_of(node.values[i]);
  }
  return "{" + text + "}";
}

std::string read(std::string_view text) { return text_of(parse_yaml(text, "r.yaml")); }

}  // namespace

TEST_CASE("yaml: scalars stay as they are written, in maps and lists of both notations") {
  CHECK(read("a: 1.10\nb: \"1\"\nc: 'it''s'\nd: ~\ne:\nf: x # a comment\ng: x#y\n") ==
        "{a:'1.10' b:\"1\" c:\"it's\" d:null e:null f:'x' g:'x#y'}");
  CHECK(read("a:\n- 1\n- [b, 'c']\n- {d: e}\nf: {g: [], h: {}}\n") == "{a:['1' ['b' \"c\"] {d:'e'}] f:{g:[] h:{}}}");
  CHECK(read("a: |\n  one\n  two\nb: >-\n  one\n  two\nc: one\n  two\nd: \"one\n  two\"\n") ==
        "{a:\"one\ntwo\n\" b:\"one two\" c:'one two' d:\"one two\"}");
  CHECK(read("a: \"\\u00e9\\n\\\"\"\nb: '\"'\nc: \"'\"\n") == "{a:\"\xC3\xA9\n\"\" b:\"\"\" c:\"'\"}");
  CHECK(read("\xEF\xBB\xBF"
             "a: \"\xC3\xA9\"\r\nb: 'x'\r\n") == "{a:\"\xC3\xA9\" b:\"x\"}");
  CHECK(read("%YAML 1.1\n---\na: 1\n...\n") == "{a:'1'}");
  CHECK(read("{\"a\": 1, \"b\": [true, null]}") == "{a:'1' b:['true' null]}");
  CHECK(read("text") == "'text'");
  CHECK(read("\"1\": a\n'null': b") == "{1:'a' null:'b'}");
}

TEST_CASE("yaml: aliases stand for what is anchored, and merge keys for what a map lacks") {
  CHECK(read("a: &x 1\nb: *x\nc: &y [*x, 2]\nd: *y\n") == "{a:'1' b:'1' c:['1' '2'] d:['1' '2']}");
  CHECK(read("a: &x ~\nb: *x\nc: &y 'q'\nd: *y\n") == "{a:null b:null c:\"q\" d:\"q\"}");
  CHECK(read("a: &x {k: 1, l: 2}\nb:\n  k: 3\n  <<: *x\n") == "{a:{k:'1' l:'2'} b:{k:'3' l:'2'}}");
  CHECK(read("b: {<<: {k: 1}, k: 2}") == "{b:{k:'2'}}");
  CHECK(read("a: &x {k: 1}\nb: &y {k: 2, l: 2}\nc: {<<: [*x, *y]}") == "{a:{k:'1'} b:{k:'2' l:'2'} c:{k:'1' l:'2'}}");
  CHECK(read("a: &x 1\nb: &x 2\nc: *x") == "{a:'1' b:'2' c:'2'}");
  CHECK(read("\"<<\": 1") == "{<<:'1'}");
}

TEST_CASE("yaml: each node and key knows where it begins") {
  const YamlNode node = parse_yaml("# c\na: 1\nlong_name:\n  - x\n  - {b: 2}\n", "r.yaml");
  CHECK(node.keys[0].place.line == 2);
  CHECK(node.keys[1].place.line == 3);
  CHECK(node.keys[1].place.column == 1);
  CHECK(node.values[0].place.column == 4);
  CHECK(place_in("f", node.values[1].values[0].place) == "f:4:5");
  CHECK(place_in("f", node.values[1].values[1].keys[0].place) == "f:5:6");
}

TEST_CASE("yaml: what is more than one document of maps, lists and scalars is refused, with its place") {
  CHECK(said_of("") == "r.yaml: nothing stands in it, expected keys and their values");
  CHECK(said_of("# a comment\n") == "r.yaml: nothing stands in it, expected keys and their values");
  CHECK(said_of("---\na: 1\n---\nb: 2\n") == "r.yaml:3:1: found a second document, expected one");
  CHECK(said_of("a: !!str 1\n") ==
        "r.yaml:1:4: found the tag tag:yaml.org,2002:str, expected none: what a value is follows from its key");
  CHECK(said_of("a: !!python/object:os.system [x]\n") ==
        "r.yaml:1:4: found the tag tag:yaml.org,2002:python/object:os.system, expected none: what a value is follows "
        "from its key");
  CHECK(said_of("a: !x {b: 1}\n") ==
        "r.yaml:1:4: found the tag !x, expected none: what a value is follows from its key");
  CHECK(said_of("a: 1\nb: 2\na: 3\n") == "r.yaml:3:1: the key a stands here a second time, the first is in line 1");
  CHECK(said_of("a: {b: 1, b: 2}") == "r.yaml:1:11: the key b stands here a second time, the first is in line 1");
  CHECK(said_of("<<: {a: 1}\n<<: {b: 1}\n") == "r.yaml:2:1: the key << stands here a second time");
  CHECK(said_of("<<: 1\n") == "r.yaml:1:5: found no map behind <<, expected the alias of a map, or a list of such");
  CHECK(said_of("<<: [{a: 1}, 1]\n") ==
        "r.yaml:1:14: found no map behind <<, expected the alias of a map, or a list of such");
  CHECK(said_of("1: a\n") == "r.yaml:1:1: found 1 as a key, expected a text; a text in quotes is one");
  CHECK(said_of("yes: a\n") == "r.yaml:1:1: found yes as a key, expected a text; a text in quotes is one");
  CHECK(said_of("null: a\n") == "r.yaml:1:1: found null as a key, expected a text");
  CHECK(said_of("? [a]\n: 1\n") == "r.yaml:1:3: found a list as a key, expected a text");
  CHECK(said_of("? {a: b}\n: 1\n") == "r.yaml:1:3: found a map as a key, expected a text");
  CHECK(said_of("a: &x [*x]\n") == "r.yaml:1:8: found an alias of what it stands in, which would have no end");
}

TEST_CASE("yaml: a key without a colon, and a quote or bracket without its other half, are no values") {
  // The parser takes the first for a key without a value, and ends the second where the file ends.
  const std::string alone = " alone, expected a key with a colon and a value behind it";
  const auto alone_in = [&](const std::string& bracket) {
    return alone + ", or a bracket that ends what begins at " + bracket;
  };
  CHECK(said_of("a: 1\nlora_rank\n") == "r.yaml:2:1: found lora_rank" + alone);
  CHECK(said_of("? a\n") == "r.yaml:1:3: found a" + alone);
  CHECK(read("a: {b: , c: d}\nb :\n\"c\":\n? d\n:\n") == "{a:{b:null c:'d'} b:null c:null d:null}");
  // Nor is a colon that stands in quotes, in a comment or in a name the one behind the key.
  CHECK(said_of("{learning_rate: 1e-3, \"seed: 5\"}") == "r.yaml:1:23: found seed: ..." + alone_in("1:1"));
  CHECK(said_of("{a: b, 'it''s: 5'}") == "r.yaml:1:8: found it's: ..." + alone_in("1:1"));
  CHECK(said_of("{a: b, &x:y \"c: d\"}") == "r.yaml:1:8: found c: ..." + alone_in("1:1"));
  CHECK(said_of("a: 1\n? &x:y lora_rank\n") == "r.yaml:2:3: found lora_rank" + alone);
  CHECK(said_of("a: &x:y b\n? *x:y\n") == "r.yaml:2:3: found b" + alone);
  CHECK(said_of("a: 1\n? lora_rank # c: d\n") == "r.yaml:2:3: found lora_rank" + alone);
  CHECK(said_of("a: 1\n? lora\n    rank:x\n") == "r.yaml:2:3: found lora ..." + alone);
  CHECK(said_of("a: 1\ntoken SECRET\n") == "r.yaml:2:1: found token ..." + alone);
  CHECK(read("{\"a: b\": , &x c: , 'd' : ~, e:}") == "{a: b:null c:null d:null e:null}");
  CHECK(read("a: &x b\n? *x # c\n# d\n:\n") == "{a:'b' b:null}");
  CHECK(said_of("a: {b}\n") == "r.yaml:1:5: found b" + alone_in("1:4"));
  CHECK(said_of("a: [1, 2\n") == "r.yaml:1:8: found 2" + alone_in("1:4"));
  CHECK(said_of("a: \"x\nb: 1\n") == "r.yaml:1:4: found a quote that nothing ends, expected another \"");
  CHECK(said_of("a: 'x\nb: ''1\n") == "r.yaml:1:4: found a quote that nothing ends, expected another '");
  CHECK(said_of("a: &x \"x\\\"\n") == "r.yaml:1:7: found a quote that nothing ends, expected another \"");
  CHECK(said_of("a: 'x") == "r.yaml:1:6: no YAML: illegal EOF in scalar; expected the other quote");
  CHECK(said_of("b: 1\na: {b: 1\n") == "r.yaml:2:4: no YAML: end of map flow not found, for what begins here");
  CHECK(said_of("a: [\n") == "r.yaml:1:4: no YAML: end of sequence flow not found, for what begins here");
}

TEST_CASE("yaml: what the parser refuses has its place, and what may have been meant") {
  CHECK(said_of("a: 1\n\tb: 2\n") == "r.yaml:2:1: no YAML: illegal tab when looking for indentation; expected spaces");
  CHECK(said_of("\ta: 1\n") ==
        "r.yaml:1:3: no YAML: illegal map value; found a tab at the line's begin, expected spaces");
  CHECK(said_of("a: b: c\n") == "r.yaml:1:5: no YAML: illegal map value; a text that has a colon needs quotes");
  CHECK(said_of("a: *x\n") == "r.yaml:1:4: no YAML: the referenced anchor is not defined");
  CHECK(said_of("a: @x\n") == "r.yaml:1:4: no YAML: unknown token");
  const std::string end = "no YAML: illegal flow end, expected the bracket that ends what begins at ";
  CHECK(said_of("a: {b: 1, c: [2, 3}\n") == "r.yaml:1:19: " + end + "1:14");
  CHECK(said_of("a: [1,\n  {b: \"]}\", # }\n   c: 'it''s}', d: it's, e: [f]]\n") == "r.yaml:3:32: " + end + "2:3");
  CHECK(said_of("a: b[\nc: d]\n-: [1}\n") == "r.yaml:3:6: " + end + "3:4");
  CHECK(said_of("a: 1\n]\n") == "r.yaml:2:1: no YAML: illegal flow end");
  CHECK(said_of("a: \"\\q\"\n") == "r.yaml:1:7: no YAML: unknown escape character: q");
}

TEST_CASE("yaml: aliases of aliases take no more memory than settings may, nor brackets the stack") {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    bomb += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 9; ++i) bomb += std::string(i > 0 ? ", *" : "*") + static_cast<char>(c - 1);
    bomb += "]\n";
  }
  CHECK(test::holds(said_of(bomb), ": with its aliases the document has more than 20000 values or 4 MiB of texts"));
  std::string texts = "a: &a " + std::string(100'000, 'x') + "\nb:\n";
  for (int i = 0; i < 40; ++i) texts += "- *a\n";
  CHECK_NOTHROW((void)parse_yaml(texts, "r.yaml"));
  texts += "- *a\n";
  CHECK(test::holds(said_of(texts), "r.yaml:43:3: with its aliases the document has more than 20000 values or 4 MiB"));
  std::string many = "a: [";
  for (std::size_t i = 0; i < most_yaml_nodes; ++i) many += "x,";
  CHECK(test::holds(said_of(many + "]"), "more than 20000 values"));
  const auto nested = [](std::size_t levels) {
    return "a: " + std::string(levels - 1, '[') + std::string(levels - 1, ']');
  };
  CHECK_NOTHROW((void)parse_yaml(nested(deepest_yaml), "r.yaml"));
  CHECK(said_of(nested(deepest_yaml + 1)) == "r.yaml:1:33: nested deeper than 30 levels");
  CHECK(test::holds(said_of(nested(50'000)), "nested deeper than 30 levels"));
}

#endif

}  // namespace yaml_test
