#include "lora/data/records/record_columns.hpp"

#include <doctest/doctest.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/data/records/dataset.hpp"
#include "lora/io/files/file.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace record_columns_test {

using namespace lora;
using namespace lora::data;

namespace {

/// A file of records whose fields have other names.
struct Named {
  Named(std::string_view content, RecordColumns columns, const std::string& name = "d.jsonl") : file(path(name)) {
    io::write_file(path(name), content);
    file.columns = std::move(columns);
  }
  std::string path(const std::string& name) const { return (folder / name).native(); }
  Dataset open(const DatasetOptions& options = {}) const { return Dataset::open(std::span(&file, 1), options); }
  std::string error(const DatasetOptions& options = {}) const {
    return test::message_of<FormatError>([&] { (void)open(options)[0]; });
  }

  test::TempFolder folder;
  DataFile file;
};

/// "user: Q | assistant: A"
std::string turns_of(const Sample& sample) {
  std::string text;
  for (const Message& turn : sample.messages) text += (text.empty() ? "" : " | ") + turn.role + ": " + turn.content;
  return text;
}

}  // namespace

TEST_CASE("columns: the fields of a pair may have any names, and others are not read") {
  const Named named(
      R"({"question": "Q", "context": "C", "answer": "A", "sys": "S", "past": [["q", "a"]], "system": "not"})",
      {.columns = {{"prompt", "question"},
                   {"query", "context"},
                   {"response", "answer"},
                   {"system", "sys"},
                   {"history", "past"}}});
  const Dataset dataset = named.open();
  CHECK(turns_of(dataset[0]) == "system: S | user: q | assistant: a | user: Q\nC | assistant: A");
  CHECK(dataset.take_unused_fields() == std::vector<std::string>{"system"});
  CHECK(dataset.kinds() == std::vector{Sample::Kind::messages});
  // A column that records lack, but for the prompt, is as if it were empty.
  const Named few(R"({"q": "Q", "output": "A", "input": "I"})",
                  {.columns = {{"prompt", "q"}, {"response", "output"}, {"query", "x"}}});
  const Dataset lacks = few.open();
  CHECK(turns_of(lacks[0]) == "user: Q | assistant: A");
  const auto absent = lacks.take_absent_columns();
  REQUIRE(absent.size() == 1);
  CHECK(absent[0].ends_with("d.jsonl: no record that was read has \"x\", which columns of the file name as query"));
  CHECK(lacks.take_absent_columns().empty());  // once
  CHECK(dataset.take_absent_columns().empty());
  // One record that has it is enough, and a prompt needs no answer where none is asked for.
  const Named second("{\"q\": \"Q\", \"s\": \"S\"}\n{\"q\": \"Q\", \"x\": \"X\"}\n",
                     {.columns = {{"prompt", "q"}, {"response", "a"}, {"query", "x"}, {"system", "s"}}});
  const Dataset prompts = second.open({.need_answer = false});
  (void)prompts[0];
  (void)prompts[1];
  CHECK(prompts.take_absent_columns().empty());
}

TEST_CASE("columns: a prompt alone is a plain text, of whatever field") {
  const Named named(R"({"content": "T", "text": "other"})", {.columns = {{"prompt", "content"}}});
  CHECK(named.open()[0].text == "T");
  CHECK(named.open({.text_column = "body"})[0].text == "T");
  CHECK(named.open().kinds() == std::vector{Sample::Kind::text});
  const Named lines("one\ntwo\n", {.columns = {{"prompt", "text"}}}, "d.txt");
  CHECK(lines.open()[1].text == "two");
  CHECK(
      test::holds(Named("one\n", {.columns = {{"prompt", "x"}}}, "d.txt").error(),
                  "d.txt: columns or tags of a .txt file, of which each line is a text; expected none, or {\"prompt\": "
                  "\"text\"}"));
}

TEST_CASE("columns: a conversation's fields and roles may have any names") {
  const Named named(
      R"({"talk": [{"who": "sys", "says": "S"}, {"who": "customer", "says": "Q"}, {"who": "agent", "says": "A", "weight": 0},)"
      R"( {"who": "customer", "says": "R"}, {"who": "agent", "says": "B"}], "note": 1, "loss": true})",
      {.columns = {{"messages", "talk"}},
       .tags = {{"role_tag", "who"},
                {"content_tag", "says"},
                {"user_tag", "customer"},
                {"assistant_tag", "agent"},
                {"system_tag", "sys"}}});
  const Dataset dataset = named.open();
  CHECK(turns_of(dataset[0]) == "system: S | user: Q | assistant: A | user: R | assistant: B");
  CHECK_FALSE(dataset[0].messages[2].learned);
  CHECK(dataset[0].messages[4].learned);
  CHECK(dataset.take_unused_fields() == std::vector<std::string>{"note"});
  // Tags alone: the turns stand where sharegpt has them; from and value of a turn with other tags are not read.
  const Named tags(
      R"({"conversations": [{"role": "user", "content": "Q", "from": "x"}, {"role": "bot", "content": "A"}], "system": "S"})",
      {.tags = {{"role_tag", "role"}, {"content_tag", "content"}, {"user_tag", "user"}, {"assistant_tag", "bot"}}});
  const Dataset of_tags = tags.open();
  CHECK(turns_of(of_tags[0]) == "system: S | user: Q | assistant: A");
  CHECK(of_tags.take_unused_fields() == std::vector<std::string>{"conversations[].from"});
}

TEST_CASE("columns: calls and what tools return are those of sharegpt by their tags") {
  const Named named(
      R"({"m": [{"from": "u", "value": "Q"}, {"from": "call", "value": "{\"name\": \"f\", \"arguments\": {}}"},)"
      R"( {"from": "result", "value": "7"}, {"from": "a", "value": "A"}], "t": "[{\"name\": \"f\"}]"})",
      {.columns = {{"messages", "m"}, {"tools", "t"}},
       .tags = {{"user_tag", "u"}, {"assistant_tag", "a"}, {"function_tag", "call"}, {"observation_tag", "result"}}});
  const Sample sample = named.open()[0];
  CHECK(turns_of(sample) == "user: Q | assistant:  | tool: 7 | assistant: A");
  REQUIRE(sample.messages[1].tool_calls.size() == 1);
  CHECK(sample.messages[1].tool_calls[0].name == "f");
  CHECK(sample.tools.size() == 1);
}

TEST_CASE("columns: the class of a record stays, and what says whether it is learned") {
  const Named named(R"({"q": "Q", "a": "A", "level": "easy", "weight": 0})",
                    {.columns = {{"prompt", "q"}, {"response", "a"}}});
  const Dataset dataset = named.open({.label_field = "level"});
  CHECK(dataset[0].label == "easy");
  CHECK_FALSE(dataset[0].learned);
  CHECK(dataset.take_unused_fields().empty());
  CHECK(named.open({.label_field = "q"})[0].label == "Q");
  CHECK(test::holds(
      Named(R"({"q": "Q", "a": "A", "input": "I"})", {.columns = {{"prompt", "q"}, {"response", "a"}}})
          .error({.label_field = "input"}),
      "d.jsonl:1: the class of a record can't stand in \"input\", which is read of records, where columns name "
      "its other fields; expected another name"));
}

TEST_CASE("columns: a record that lacks its prompt or turns is told by the name that the file has for them") {
  CHECK(test::holds(Named(R"({"x": 1})", {.columns = {{"prompt", "q"}, {"response", "a"}}}).error(),
                    "d.jsonl:1: \"q\" is missing, which is the record's prompt by columns of its file"));
  CHECK(test::holds(Named(R"({"x": 1})", {.columns = {{"messages", "m"}}}).error(),
                    "d.jsonl:1: \"m\" is missing, which is the record's messages by columns of its file"));
  const RecordColumns pair{.columns = {{"prompt", "q"}, {"response", "a"}}};
  CHECK(test::holds(Named(R"({"q": "Q", "output": "A"})", pair).error(),
                    "d.jsonl:1: \"a\" is missing, which is the record's response by columns of its file"));
  CHECK(Named(R"({"q": "Q"})", pair).open({.need_answer = false})[0].messages.size() == 1);
  CHECK(test::holds(Named("[1]", {.columns = {{"prompt", "q"}}}).error(), "expected a record"));
}

TEST_CASE("columns: what is wrong with a record is told with the names that the file has") {
  CHECK(Named(R"({"q": 1, "a": "A"})", {.columns = {{"prompt", "q"}, {"response", "a"}}})
            .error()
            .ends_with("; by columns and tags of the file instruction is \"q\", output is \"a\""));
  CHECK(Named(R"({"t": 1})", {.columns = {{"prompt", "t"}}})
            .error()
            .ends_with("; by columns and tags of the file text is \"t\""));
  const std::string role =
      Named(R"({"conversations": [{"from": "boss", "value": "Q"}]})",
            {.columns = {{"messages", "conversations"}}, .tags = {{"user_tag", "me"}, {"assistant_tag", "gpt"}}})
          .error();
  CHECK(test::holds(role, "the role \"boss\"; expected system, "));
  CHECK(role.ends_with("; by columns and tags of the file human is \"me\""));
  // Also of the first record, by which a file is known; where all names are the usual ones there is nothing to tell.
  CHECK(Named(R"({"m": "x"})", {.columns = {{"messages", "m"}}}).error().ends_with("conversations is \"m\""));
  CHECK_FALSE(test::holds(Named(R"({"conversations": 1})", {.columns = {{"messages", "conversations"}}}).error(),
                          "by columns and tags"));
}

TEST_CASE("columns: the same bytes under other names are other records") {
  const std::string_view record = R"({"a": "1", "b": "2"})";
  const Named one(record, {.columns = {{"prompt", "a"}, {"response", "b"}}}),
      two(record, {.columns = {{"prompt", "b"}, {"response", "a"}}});
  CHECK(one.open().fingerprint() != two.open().fingerprint());
  CHECK(one.open().fingerprint() == Named(record, one.file.columns).open().fingerprint());
  // Their order means nothing, nor their name of a file's lines.
  const Named turned(record, {.columns = {{"response", "b"}, {"prompt", "a"}}});
  CHECK(one.open().fingerprint() == turned.open().fingerprint());
  const Named lines("a\n", {.columns = {{"prompt", "text"}}}, "d.txt"), plain("a\n", {}, "d.txt");
  CHECK(lines.open().fingerprint() == plain.open().fingerprint());
}

TEST_CASE("columns: what can't be meant is told") {
  using Names = RecordColumns::Names;
  const auto wrong = [](Names columns, Names tags = {}) {
    return offence(RecordColumns{std::move(columns), std::move(tags)}).value_or("nothing");
  };
  CHECK(wrong({}) == "nothing");
  CHECK(wrong({{"prompt", "a"}, {"response", "b"}}) == "nothing");
  CHECK(wrong({{"messages", "a"}}, {{"role_tag", "b"}}) == "nothing");
  CHECK(wrong({}, {{"user_tag", "b"}}) == "nothing");
  CHECK(wrong({{"prompts", "a"}}) ==
        "the name \"prompts\"; expected prompt, query, response, history, messages, system, tools");
  CHECK(wrong({}, {{"user", "a"}}) ==
        "the name \"user\"; expected role_tag, content_tag, user_tag, assistant_tag, observation_tag, function_tag, "
        "system_tag");
  CHECK(wrong({{"prompt", ""}}) == "an empty text for prompt");
  CHECK(wrong({{"prompt", "a"}, {"prompt", "b"}}) == "two texts for prompt");
  CHECK(wrong({{"prompt", "a"}, {"response", "a"}}) == "\"a\" for prompt and response");
  CHECK(wrong({{"messages", "a"}, {"response", "b"}}) == "messages beside prompt, query, response or history");
  CHECK(wrong({{"response", "b"}}) == "neither prompt nor messages");
  CHECK(wrong({{"prompt", "a"}}, {{"user_tag", "b"}}) == "tags beside prompt: they are of messages");
}

}  // namespace record_columns_test
