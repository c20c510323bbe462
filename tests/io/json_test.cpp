#include "lora/io/json.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "support/temp_folder.hpp"

namespace json_test {

using namespace lora;
using namespace lora::io;
using lora::test::TempFolder;

namespace {

/// The message of the FormatError that parsing `text` as x.json throws.
std::string parse_message(std::string_view text, bool comments = false, std::optional<JsonPlace> begin = {}) {
  try {
    parse_json(text, "x.json", comments, begin);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "no FormatError";
}

bool begins(const std::string& text, std::string_view start) { return text.compare(0, start.size(), start) == 0; }

}  // namespace

TEST_CASE("json: a value that an error shows is on one line, and short") {
  CHECK(shown(parse_json(R"({"a": [1, {"b": 2.50}], "c": "x"})", "x")) == R"({"a":[1,{"b":2.5}],"c":"x"})");
  CHECK(shown(Json(std::string(200, 'x'))).size() < 100);
}

TEST_CASE("json: values of every kind are read, and objects keep their order") {
  const Json json = parse_json(
      R"({"z": [1, -2, 3.5, 18446744073709551615, "s\u00e9\ud83d\ude00", true, null], "a": {"b": {}}})", "x");
  REQUIRE(json.size() == 2);
  CHECK(json.begin().key() == "z");
  const Json& list = json["z"];
  CHECK(list[0].get<int>() == 1);
  CHECK(list[1].get<int>() == -2);
  CHECK(list[2].get<double>() == 3.5);
  CHECK(list[3].get<std::uint64_t>() == std::numeric_limits<std::uint64_t>::max());
  CHECK(list[4].get<std::string>() == "s\xc3\xa9\xf0\x9f\x98\x80");
  CHECK(list[5].get<bool>());
  CHECK(list[6].is_null());
  CHECK(json["a"]["b"].is_object());
  CHECK(parse_json("7", "x").get<int>() == 7);
}

TEST_CASE("json: text and values go round") {
  const std::string text = R"({"b":[1,2.5,"x\n\"é"],"a":{"n":null,"t":true,"e":1e-300}})";
  CHECK(to_text(parse_json(text, "x"), -1) == text);
  CHECK(to_text(Json("a\xFFz"), -1) == "\"a\xEF\xBF\xBDz\"");  // no UTF-8: U+FFFD in its place
  const Json numbers = {0.1, 1.0 / 3.0, 1e300, -0.0};
  CHECK(parse_json(to_text(numbers), "x") == numbers);
}

TEST_CASE("json: errors give file, line and column") {
  CHECK(begins(parse_message("{\"a\": 1,\n  \"b\": tru}"), "x.json:2:11: syntax error while parsing value"));
  CHECK(begins(parse_message("{\"a\": 1"), "x.json:1:8: syntax error while parsing object - unexpected end of input"));
  CHECK(begins(parse_message(""), "x.json:1:1: syntax error while parsing value - unexpected end of input"));
  CHECK(begins(parse_message("{} {}"), "x.json:1:4: syntax error while parsing value"));
  CHECK(begins(parse_message("[1, 2,]", false, JsonPlace{40}), "x.json:40:7: "));
  CHECK(begins(parse_message("[1e999]"), "x.json:1:6: number overflow"));
  CHECK(begins(parse_message("[NaN]"), "x.json:1:2: "));
}

TEST_CASE("json: errors of a value within a file have its place there, and say which value it is") {
  const JsonPlace third{1, 500, "record 3"};
  CHECK(
      begins(parse_message("{\"a\": tru}", false, third), "x.json:1:509: record 3: syntax error while parsing value"));
  CHECK(
      begins(parse_message("{\n\"a\": tru}", false, third), "x.json:2:9: record 3: syntax error while parsing value"));
  CHECK(parse_message(R"({"k": 1, "k": 2})", false, third) ==
        "x.json:1: record 3: the key \"k\" appears twice in one object");
}

TEST_CASE("json: what other notations have is told where it stands") {
  const auto ends = [](const char* text, std::string_view end) { return parse_message(text).ends_with(end); };
  CHECK(ends("{\"a\": 1,\n}", "; JSON has no comma before it"));
  CHECK(ends("[1, 2,]", "; JSON has no comma before it"));
  CHECK(ends("{'a': 1}", "; JSON has double quotes"));
  for (const char* value : {"NaN", "Infinity", "-Infinity"})
    CHECK(ends(("[" + std::string(value) + "]").c_str(),
               "; JSON has no NaN and no Infinity, null stands for what is missing"));
  for (const char* value : {"True", "False", "None"})
    CHECK(ends(("[" + std::string(value) + "]").c_str(), "; JSON writes true, false and null"));
  for (const char* other : {"[1 2]", "[Nan]", "[}", "{\"a\"}"})
    CHECK_FALSE(parse_message(other).find("; JSON") != std::string::npos);
}

TEST_CASE("json: invalid UTF-8 is an error") {
  CHECK(begins(parse_message("[\"\xff\"]"),
               "x.json:1:3: syntax error while parsing value - invalid string: ill-formed UTF-8"));
  CHECK(begins(parse_message("[\"\xc0\x80\"]"), "x.json:1:3: "));
  CHECK(begins(parse_message("[\"\xed\xa0\x80\"]"), "x.json:1:4: "));
  CHECK(begins(parse_message("[\"\\ud800\"]"), "x.json:1:9: "));
}

TEST_CASE("json: a key that appears twice is an error") {
  CHECK(parse_message(R"({"a": {"k": 1, "other": 2, "k": 3}})") == "x.json: the key \"k\" appears twice in one object");
  CHECK(parse_message(R"({"k": 1, "k": 2})", false, JsonPlace{7}) ==
        "x.json:7: the key \"k\" appears twice in one object");
  CHECK(parse_message(R"([{"k": 1}, {"k": 2}])") == "no FormatError");
}

TEST_CASE("json: nesting is limited") {
  const std::size_t most = io::JsonBuilder::max_depth;
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(parse_message(nested(most)) == "no FormatError");
  CHECK(parse_message(nested(most + 1)) == "x.json: nested deeper than 200 levels");
  CHECK(parse_message(nested(1'000'000)) == "x.json: nested deeper than 200 levels");
}

TEST_CASE("json: a long broken string makes no long message") {
  CHECK(parse_message("[\"" + std::string(1'000'000, 'a')).size() < 400);
}

TEST_CASE("json: a large object is read in linear time") {
  std::string text = "{\"k\": 0";
  for (int i = 0; i < 300'000; ++i) text += ",\"key" + std::to_string(i) + "\": " + std::to_string(i);
  CHECK(parse_json(text + "}", "x").size() == 300'001);  // quadratic: minutes
}

TEST_CASE("json: comments are for those who ask") {
  const std::string text = "// run\n{\"a\": /* here */ 1}";
  CHECK(parse_json(text, "x", true)["a"].get<int>() == 1);
  CHECK(begins(parse_message(text), "x.json:1:1: "));
}

TEST_CASE("json: what is changed in a file leaves the digits of its other numbers") {
  const TempFolder folder;
  write_file(folder / "a.json", std::string_view(R"({
    "model_max_length": 1000000000000000019884624838656, "eps": [1e-6, {"x": 1E5, "y": 1.50, "n": 12}], "gone": 1e-5,
    "changed": 1e-6, "text": "1e-6", "moved": 1e-6, "longer": [1e-6]})"));
  Json json = read_json(folder / "a.json");
  json.erase("gone");
  json["changed"] = 2e-6;
  json["moved"] = "1e-6";
  json["longer"] = {1e-6, 1e-6};
  json["more"] = 1e-6;
  write_changed_json(folder / "b.json", json, folder / "a.json");
  CHECK(read_json(folder / "b.json") == json);
  const std::string written = read_file(folder / "b.json");
  for (const char* line :
       {"\"model_max_length\": 1000000000000000019884624838656,\n", "    1e-6,\n", "\"x\": 1E5,\n", "\"y\": 1.50,\n",
        "\"n\": 12\n", "\"changed\": 2e-06,", "\"text\": \"1e-6\",", "\"moved\": \"1e-6\",", "\"more\": 1e-06\n"}) {
    CAPTURE(line);
    CHECK(written.find(line) != written.npos);
  }
  write_changed_json(folder / "a.json", json, folder / "a.json");
  CHECK(read_file(folder / "a.json") == written);
  // A text that looks like what stands for such a number, and no file to take digits from.
  json["text"] = std::string(JsonBuilder::number_mark) + "1e-6";
  for (const char* original : {"a.json", "none.json"}) {
    write_changed_json(folder / "c.json", json, folder / original);
    CHECK(read_file(folder / "c.json") == to_text(json) + "\n");
  }
}

TEST_CASE("json: files are written and read") {
  const TempFolder folder;
  const Json json = {{"b", 1}, {"a", {1.5, "x"}}};
  write_json(folder / "a.json", json);
  CHECK(read_file(folder / "a.json").back() == '\n');
  CHECK(read_json(folder / "a.json") == json);
  write_file(folder / "broken.json", "{\n\"a\": }");
  std::string message;
  try {
    read_json(folder / "broken.json");
  } catch (const FormatError& error) {
    message = error.what();
  }
  CHECK(begins(message, (folder / "broken.json").native() + ":2:6: "));
}

}  // namespace json_test
