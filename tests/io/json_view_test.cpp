#include "lora/io/formats/json_view.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace json_view_test {

using namespace lora;
using namespace lora::io;
using lora::test::message_of;
using lora::test::TempFolder;

namespace {

template <class T>
std::string type_message(const Json& object, std::string_view key) {
  try {
    (void)JsonView(object, "x.json").at<T>(key);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "no FormatError";
}

}  // namespace

TEST_CASE("json view: fields are taken as what fits, and what does not is named") {
  const Json json = parse_json(
      R"({"i": 3, "neg": -1, "big": 18446744073709551615, "f": 0.5, "s": "x", "b": false, "n": null, "l": [1, 2], "m": [1, "x"]})",
      "x");
  const JsonView view(json, "x.json");
  CHECK(view.at<int>("i") == 3);
  CHECK(view.at<std::int64_t>("neg") == -1);
  CHECK(view.at<std::uint64_t>("big") == std::numeric_limits<std::uint64_t>::max());
  CHECK(view.at<double>("i") == 3.0);
  CHECK(view.at<double>("f") == 0.5);
  CHECK(view.at<std::string>("s") == "x");
  CHECK_FALSE(view.at<bool>("b"));
  CHECK(view.at<std::vector<Index>>("l") == std::vector<Index>{1, 2});
  CHECK_FALSE(view.get<int>("n").has_value());
  CHECK_FALSE(view.get<int>("absent").has_value());

  CHECK(type_message<int>(json, "absent") == "x.json: \"absent\" is missing");
  CHECK(type_message<int>(json, "n") == "x.json: \"n\" is null");
  CHECK(type_message<int>(json, "f") == "x.json: \"f\" must be an integer in range, found 0.5");
  CHECK(type_message<std::uint64_t>(json, "neg") == "x.json: \"neg\" must be an integer in range, found -1");
  CHECK(type_message<std::int64_t>(json, "big") ==
        "x.json: \"big\" must be an integer in range, found 18446744073709551615");
  CHECK(type_message<bool>(json, "i") == "x.json: \"i\" must be true or false, found 3");
  CHECK(type_message<std::string>(json, "b") == "x.json: \"b\" must be a string, found false");
  CHECK(type_message<double>(json, "s") == "x.json: \"s\" must be a number, found \"x\"");
  CHECK(type_message<std::vector<int>>(json, "i") == "x.json: \"i\" must be an array, found 3");
  CHECK(type_message<std::vector<int>>(json, "m") == "x.json: \"m[1]\" must be an integer in range, found \"x\"");
}

TEST_CASE("json view: an error names the file and all fields that lead to the value") {
  const Json json = parse_json(R"({"rope": {"factor": "x"}, "turns": [{"role": 1}, 2], "m": {"a": 1, "b": "c"}})", "x");
  const JsonView view(json, "x.json:3");
  CHECK(view.has("rope"));
  CHECK_FALSE(view.find("absent"));
  CHECK(view.place() == "x.json:3");
  CHECK(view.find("rope")->place() == "x.json:3: rope");
  CHECK(message_of([&] { (void)view.find("rope")->at<double>("factor"); }) ==
        "x.json:3: rope: \"factor\" must be a number, found \"x\"");
  CHECK(message_of([&] { (void)view.find("rope")->at<double>("theta"); }) == "x.json:3: rope: \"theta\" is missing");
  const JsonView turns = *view.find("turns");
  CHECK(message_of([&] { (void)turns.element(0).at<std::string>("role"); }) ==
        "x.json:3: turns[0]: \"role\" must be a string, found 1");
  CHECK(message_of([&] { (void)turns.element(1).as<bool>(); }) ==
        "x.json:3: \"turns[1]\" must be true or false, found 2");
  CHECK(message_of([&] { turns.element(1).fail("no ", 7); }) == "x.json:3: turns[1]: no 7");
  std::string seen;
  view.find("m")->for_each_field([&](const std::string& name, const JsonView& value) {
    seen += concat(name, "=", value.json().is_number() ? value.as<int>() : 0, " at ", value.place(), ";");
  });
  CHECK(seen == "a=1 at x.json:3: m: a;b=0 at x.json:3: m: b;");
}

TEST_CASE("json view: a file that must hold an object") {
  const TempFolder folder;
  write_file(folder / "a.json", std::string_view(R"({"a": 3})"));
  const JsonFile file(folder / "a.json");
  CHECK(file->at<int>("a") == 3);
  write_file(folder / "b.json", std::string_view("[1]"));
  CHECK(message_of([&] { JsonFile(folder / "b.json"); }) == (folder / "b.json").native() + ": expected an object");
}

TEST_CASE("json view: integers are taken up to the ends of their type") {
  const Json json = parse_json(
      R"({"a": 127, "b": 128, "c": -128, "d": -129, "e": 255, "f": 256, "g": 9223372036854775807, "h": 3.0, "i": 1e2})",
      "x");
  const JsonView view(json, "x.json");
  CHECK(view.at<std::int8_t>("a") == 127);
  CHECK(view.at<std::int8_t>("c") == -128);
  CHECK(view.at<std::uint8_t>("e") == 255);
  CHECK(view.at<Index>("g") == std::numeric_limits<Index>::max());
  CHECK(type_message<std::int8_t>(json, "b") == "x.json: \"b\" must be an integer in range, found 128");
  CHECK(type_message<std::int8_t>(json, "d") == "x.json: \"d\" must be an integer in range, found -129");
  CHECK(type_message<std::uint8_t>(json, "f") == "x.json: \"f\" must be an integer in range, found 256");
  CHECK(type_message<int>(json, "h") == "x.json: \"h\" must be an integer in range, found 3.0");
  CHECK(type_message<int>(json, "i") == "x.json: \"i\" must be an integer in range, found 100.0");
  CHECK(view.at<float>("c") == -128.0f);
}

TEST_CASE("json view: a value of its own, and lists within lists") {
  const Json json = parse_json(R"([[1, 2], [], [3]])", "x");
  const JsonView view(json, "x.json", "lists");
  CHECK(view.place() == "x.json: lists");
  CHECK(view.name() == "lists");
  CHECK(view.where() == "x.json");
  CHECK(&view.json() == &json);
  CHECK(view.as<std::vector<std::vector<int>>>() == std::vector<std::vector<int>>{{1, 2}, {}, {3}});
  CHECK(message_of([&] { (void)view.as<std::vector<int>>(); }) ==
        "x.json: \"lists[0]\" must be an integer in range, found [1,2]");
  CHECK(message_of([&] { (void)view.as<std::vector<std::vector<std::string>>>(); }) ==
        "x.json: \"lists[0][0]\" must be a string, found 1");
  CHECK(message_of([&] { (void)view.element(1).as<std::string>(); }) ==
        "x.json: \"lists[1]\" must be a string, found []");
  CHECK(view.element(2).element(0).as<int>() == 3);
  const Json object = Json::object();
  CHECK(&JsonView::of_object(object, "x").json() == &object);
  CHECK(message_of([&] { JsonView::of_object(json, "y.json"); }) == "y.json: expected an object");
  bool value = true;
  CHECK_FALSE(take_json(Json(0), value));
  CHECK(value);
  CHECK(take_json(Json(false), value));
  CHECK_FALSE(value);
  std::string text = "kept";
  CHECK_FALSE(take_json(Json(), text));
  CHECK(text == "kept");
  double number = 1;
  CHECK_FALSE(take_json(Json("2"), number));
  CHECK(number == 1);
}

TEST_CASE("json view: a field that is null is as good as absent, but an error says which") {
  const Json json = parse_json(R"({"o": {"n": null, "f": false}})", "x");
  const JsonView inner = *JsonView(json, "x.json").find("o");
  CHECK_FALSE(inner.has("n"));
  CHECK(inner.has("f"));
  CHECK_FALSE(inner.find("n"));
  CHECK(inner.get<bool>("f") == false);
  CHECK(message_of([&] { (void)inner.at<int>("n"); }) == "x.json: o: \"n\" is null");
  CHECK(message_of([&] { (void)inner.get<int>("f"); }) == "x.json: o: \"f\" must be an integer in range, found false");
  CHECK(inner.find("f")->name() == "f");
  CHECK(inner.find("f")->where() == "x.json: o");
}

}  // namespace json_view_test
