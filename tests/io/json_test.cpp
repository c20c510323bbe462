#include "lora/io/formats/json.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace json_test {

using namespace lora;
using namespace lora::io;
using lora::test::message_of;
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

TEST_CASE("json: eighty bytes of a value are shown, of a longer one the ends") {
  CHECK(shown(Json(std::string(78, 'x'))) == '"' + std::string(78, 'x') + '"');
  CHECK(shown(Json(std::string(79, 'x'))) == '"' + std::string(59, 'x') + " ... " + std::string(19, 'x') + '"');
  CHECK(shown(Json("a\nb")) == R"("a\nb")");
}

TEST_CASE("json: files have two spaces for each level") {
  const TempFolder folder;
  write_json(folder / "a.json", parse_json(R"({"b": [1], "a": {}})", "x"));
  CHECK(read_file(folder / "a.json") == "{\n  \"b\": [\n    1\n  ],\n  \"a\": {}\n}\n");
  CHECK(to_text(Json::array({1}), 0) == "[\n1\n]");
}

TEST_CASE("json: the column of a value within a file counts in its first line only, the line from its own") {
  const JsonPlace place{40, 500, ""};
  CHECK(begins(parse_message("[1, 2,]", false, place), "x.json:40:506: syntax"));
  CHECK(begins(parse_message("[1,\n2,]", false, place), "x.json:41:3: syntax"));
  CHECK(begins(parse_message("[\n\n\n  x", false, place), "x.json:43:3: syntax"));
  CHECK(begins(parse_message("x", false, place), "x.json:40:500: syntax"));
  CHECK(parse_message(R"({"k": 1, "k": 2})", false, place) == "x.json:40: the key \"k\" appears twice in one object");
  CHECK(parse_message(std::string(201, '['), false, JsonPlace{3, 1, "record 2"}) ==
        "x.json:3: record 2: nested deeper than 200 levels");
}

TEST_CASE("json: objects count as levels of nesting, those that have ended don't") {
  const auto objects = [](int depth) {
    std::string text = "1";
    for (int i = 0; i < depth; ++i) text = R"({"a": )" + text + "}";
    return text;
  };
  CHECK(parse_message(objects(200)) == "no FormatError");
  CHECK(parse_message(objects(201)) == "x.json: nested deeper than 200 levels");
  std::string siblings = "[";
  for (int i = 0; i < 300; ++i) siblings += "[],{},";
  CHECK(parse_message(siblings + "0]") == "no FormatError");
}

TEST_CASE("json: a message that would be long keeps its begin and its end") {
  const std::string message = parse_message("[\"" + std::string(400, 'a') + "\x01\"]");
  CHECK(begins(message, "x.json:1:403: syntax error while parsing value - invalid string: control character"));
  const std::string reason = message.substr(std::string("x.json:1:403: ").size());
  CHECK(reason.size() == 150 + 5 + 150);
  CHECK(reason.substr(150, 5) == " ... ");
  CHECK(reason.ends_with("aaaa<U+0001>'"));
  const std::string shorter = parse_message("[\"" + std::string(20, 'a') + "\x01\"]");
  CHECK(shorter.find(" ... ") == std::string::npos);
}

TEST_CASE("json: a comma too many is told of behind any space, other places are not") {
  const auto hinted = [](const char* text) { return parse_message(text).ends_with("; JSON has no comma before it"); };
  for (const char* const text : {"[1,]", "[1, ]", "[1,\t]", "[1,\r\n]", "{\"a\": 1,}", "{\"a\": 1 , }"}) {
    CAPTURE(text);
    CHECK(hinted(text));
  }
  for (const char* const text : {"[1,,2]", "]", "{\"a\":}", "[1, 2", "[,1]"}) {
    CAPTURE(text);
    CHECK_FALSE(hinted(text));
  }
  CHECK(parse_message("['a']").ends_with("; JSON has double quotes"));
  CHECK(parse_message("{\"a\": Nothing}").find("; JSON") == std::string::npos);
}

TEST_CASE("json: fields and texts are found, null as if it were not there") {
  const Json json = parse_json(R"({"a": null, "b": "x", "c": 0, "": 1})", "x");
  CHECK(json_find(json, "a") == nullptr);
  CHECK(json_find(json, "d") == nullptr);
  REQUIRE(json_find(json, "b") != nullptr);
  CHECK(json_is(*json_find(json, "b"), "x"));
  CHECK_FALSE(json_is(*json_find(json, "b"), "xy"));
  CHECK_FALSE(json_is(*json_find(json, "c"), "0"));
  CHECK_FALSE(json_is(json, "x"));
  CHECK(json_find(json, "c")->get<int>() == 0);
  CHECK(json_find(json, "")->get<int>() == 1);
  CHECK(json_find(Json::array(), "a") == nullptr);
  std::string names;
  for (const auto& [name, value] : json_fields(json)) names += name + ",";
  CHECK(names == "a,b,c,,");
  CHECK(to_text(json_object({{"z", 1}, {"a", "x"}}), -1) == R"({"z":1,"a":"x"})");
  const std::string text = "t";
  CHECK(to_text(json_object({{"z", nullptr},
                             {"n", std::vector<int>{3, -1}},
                             {"t", std::vector<std::string>{"b", "a"}},
                             {"o", json_object({{"i", text}})},
                             {"b", false},
                             {"f", 0.5}}),
                -1) == R"({"z":null,"n":[3,-1],"t":["b","a"],"o":{"i":"t"},"b":false,"f":0.5})");
}

TEST_CASE("json: comments are left out of the lines that errors count, and of changed files' originals") {
  CHECK(begins(parse_message("// one\n/* two\n*/ {\"a\": }", true), "x.json:3:10: syntax error"));
  const TempFolder folder;
  write_file(folder / "a.json", std::string_view("// one\n[1]"));
  CHECK(read_json(folder / "a.json", true).size() == 1);
  CHECK_THROWS_AS(read_json(folder / "a.json"), FormatError);
  const auto told = message_of([&] { write_changed_json(folder / "b.json", Json::array(), folder / "a.json"); });
  CHECK(begins(told, (folder / "a.json").native() + ":1:1: syntax error"));
  CHECK_FALSE(is_there(folder / "b.json"));
}

}  // namespace json_test
