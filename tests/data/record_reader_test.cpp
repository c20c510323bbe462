#include "lora/data/record_reader.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/message_of.hpp"
#include "support/one_file.hpp"

namespace record_reader_test {

using namespace lora;
using data::DatasetOptions;
using data::Sample;
using test::OneFile;

namespace {

using Names = std::vector<std::string>;

std::string error(const std::string& record, const DatasetOptions& options = {}) {
  return OneFile(record).error(options);
}

/// A record of each kind with this beside its fields.
std::vector<std::string> each_kind_with(const std::string& field) {
  return {R"({"instruction":"I","output":"O",)" + field + "}",
          R"({"messages":[{"role":"user","content":"U"},{"role":"assistant","content":"A"}],)" + field + "}",
          R"({"conversations":[{"from":"human","value":"U"},{"from":"gpt","value":"A"}],)" + field + "}",
          R"({"prompt":"P","completion":"C",)" + field + "}",
          R"({"question":"Q","answer":"A",)" + field + "}",
          R"({"text":"T",)" + field + "}",
          R"({"input_ids":[1],"labels":[1],)" + field + "}"};
}

}  // namespace

TEST_CASE("record_reader: answers that are marked as bad, or stand beside worse ones, are refused") {
  for (const std::string field : {"label", "kto_tag"}) {
    CAPTURE(field);
    for (const std::string& record : each_kind_with("\"" + field + "\":false")) {
      CAPTURE(record);
      const bool text = record.starts_with("{\"text\"");  // there a label is a class
      CHECK(error(record) == (text ? "nothing was thrown"
                                   : "d.jsonl:1: \"" + field +
                                         "\" is false, which marks a bad answer (preference data); expected good "
                                         "answers only"));
    }
    for (const std::string& record : each_kind_with("\"" + field + "\":true"))
      CHECK(error(record) == "nothing was thrown");
    for (const std::string value : {"0", "0.0", "\"false\"", "\"False\"", "\"0\""})
      CHECK(error(each_kind_with("\"" + field + "\":" + value).front())
                .starts_with("d.jsonl:1: \"" + field + "\" is " + value));
    for (const std::string value : {"1", "\"news\"", "null"})
      CHECK(error(each_kind_with("\"" + field + "\":" + value).front()) == "nothing was thrown");
  }
  for (
      const char* record :
      {R"({"chosen":"a","rejected":"b"})", R"({"prompt":"P","chosen":"a","rejected":"b"})",
       R"({"instruction":"I","output":"O","chosen":"a","rejected":"b"})",
       R"({"conversations":[{"from":"human","value":"U"}],"chosen":{"from":"gpt","value":"a"},"rejected":{"from":"gpt","value":"b"}})"}) {
    CAPTURE(record);
    CHECK(error(record).starts_with("d.jsonl:1: chosen and rejected are preference data, which are not supported"));
    CHECK(error(record, {.need_answer = false}) != "nothing was thrown");
  }
}

TEST_CASE("record_reader: pictures and sounds are refused, but not their absence, nor that of tools") {
  for (const std::string field : {"images", "image", "videos", "video", "audios", "audio", "tools"}) {
    CAPTURE(field);
    for (const char* something : {R"(["a.png"])", R"("a.png")", R"({"type":"x"})", "7"})
      if (field != "tools")
        for (const std::string& record : each_kind_with("\"" + field + "\":" + something))
          CHECK(error(record) == "d.jsonl:1: " + field + (field.ends_with('s') ? " are" : " is") + " not supported");
    for (const char* nothing : {"[]", "null", R"("")", R"("[]")", R"(" [ ]\n")", "{}", R"("{}")"})
      for (const std::string& record : each_kind_with("\"" + field + "\":" + nothing)) {
        CAPTURE(record);
        CHECK(error(record) == "nothing was thrown");
        CHECK(OneFile(record).open().take_unused_fields().empty());
      }
  }
  const auto turn = [](const std::string& field) {
    return error(R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a",)" + field + "}]}");
  };
  CHECK(turn(R"("images":["a.png"])") == "d.jsonl:1: messages[1]: images are not supported");
  CHECK(turn(R"("function_call":{"name":"f"})") ==
        "d.jsonl:1: messages[1]: function_call is not supported; expected tool_calls");
  CHECK(turn(R"("tool_calls":"[]","function_call":null)") == "nothing was thrown");
}

TEST_CASE("record_reader: a weight of 0 means not learnt, of a record or a turn") {
  for (const std::string& record : each_kind_with(R"("weight":0)")) CHECK_FALSE(OneFile(record).first().learnt);
  for (const std::string& record : each_kind_with(R"("weight":1.0)")) CHECK(OneFile(record).first().learnt);
  for (const char* weight : {"0.5", "2", "-1", "true", R"("0")", "[0]"})
    for (const std::string& record : each_kind_with(std::string("\"weight\":") + weight))
      CHECK(error(record) == std::string("d.jsonl:1: \"weight\" is ") + weight + "; expected 0 or 1");

  const auto turns =
      OneFile(R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a","weight":0},)"
              R"({"role":"user","content":"v"},{"role":"assistant","content":"b","weight":1}]})")
          .first()
          .messages;
  CHECK(turns[0].learnt);
  CHECK_FALSE(turns[1].learnt);
  CHECK(turns[3].learnt);
  CHECK(error(R"({"conversations":[{"from":"gpt","value":"a","weight":0.5}]})") ==
        "d.jsonl:1: conversations[0]: \"weight\" is 0.5; expected 0 or 1");
  CHECK(error(R"({"conversations":[{"from":"human","value":"a","weight":0},{"from":"gpt","value":"a"}]})") ==
        "d.jsonl:1: conversations[0]: \"weight\" stands in a turn of the user; expected it in the assistant's turns "
        "only");
}

TEST_CASE("record_reader: a mask that hides tokens is refused") {
  CHECK(error(R"({"input_ids":[1,2],"labels":[1,2],"attention_mask":[1,1]})") == "nothing was thrown");
  for (const char* mask : {"[1,0]", "[1]", "[0,1]"})
    CHECK(error(std::string(R"({"input_ids":[1,2],"labels":[1,2],"attention_mask":)") + mask + "}") ==
          "d.jsonl:1: attention_mask hides tokens; expected records without padding");
}

TEST_CASE("record_reader: other fields are told once for all records") {
  const OneFile file(R"({"instruction":"I","output":"O","id":1,"label":3}
{"instruction":"I","output":"O","source":"x","id":2,"text":"t"}
)");
  const auto dataset = file.open();
  const auto copy = dataset;  // as of a run that holds records back
  CHECK(dataset.take_unused_fields().empty());
  for (Index i = 0; i < dataset.size(); ++i) dataset[i];
  CHECK(dataset.take_unused_fields() == Names{"id", "label", "source", "text"});
  copy[0];
  CHECK(copy.take_unused_fields().empty());

  const OneFile one(R"({"messages":[{"role":"user","content":"u","name":"B"},{"role":"assistant","content":"a"}]})");
  const auto named = one.open();
  named[0];
  CHECK(named.take_unused_fields() == Names{"messages[].name"});
}

TEST_CASE("record_reader: a record without an answer names the field in which one was expected") {
  CHECK(error(R"({"instruction":"I","response":"O"})") ==
        "d.jsonl:1: the record has no answer; expected the field output, found instruction, response");
  CHECK(error(R"({"prompt":"P","response":"O"})") ==
        "d.jsonl:1: the record has no answer; expected the field completion, found prompt, response");
  CHECK(error(R"({"question":"P"})") ==
        "d.jsonl:1: the record has no answer; expected the field answer, found question");
  CHECK(error(R"({"instruction":"I","output":""})") == "d.jsonl:1: the record has no answer; \"output\" is empty");
  CHECK(error(R"({"question":"Q","answer":null})") == "d.jsonl:1: the record has no answer; \"answer\" is empty");
  CHECK(error(R"({"text":""})") == "d.jsonl:1: the text is empty");
  CHECK(error(R"({"instruction":"I","history":[["a","b"]],"output":""})") ==
        "d.jsonl:1: the record has no answer; \"output\" is empty");
  const std::string no_turn = "d.jsonl:1: the record has no answer; expected a turn of the assistant with a text";
  CHECK(error(R"({"messages":[{"role":"user","content":"U"}]})") == no_turn);
  CHECK(error(R"({"messages":[{"role":"user","content":"U"},{"role":"assistant","content":""}]})") == no_turn);

  const DatasetOptions asked{.need_answer = false};
  for (const char* record :
       {R"({"instruction":"I","response":"O"})", R"({"prompt":"P"})", R"({"question":"Q","answer":null})",
        R"({"messages":[{"role":"user","content":"U"}]})", R"({"text":""})"}) {
    CAPTURE(record);
    CHECK(error(record, asked) == "nothing was thrown");
    CHECK_FALSE(OneFile(record).first(asked).unanswered);
    CHECK(OneFile(record).first(asked).answer().empty());
  }
  const auto sample = OneFile(R"({"instruction":"I","output":"O"})").first(asked);
  CHECK(sample.question().size() == 1);
  CHECK(sample.answer() == "O");
}

TEST_CASE("record_reader: empty answers are left out where that is asked for, but not a field that is missing") {
  const DatasetOptions skip{.skip_empty_answers = true};
  for (const char* record :
       {R"({"instruction":"I","output":""})", R"({"question":"Q","answer":null})", R"({"text":""})",
        R"({"messages":[{"role":"user","content":"U"},{"role":"assistant","content":""}]})"}) {
    CAPTURE(record);
    CHECK(OneFile(record).first(skip).unanswered);
  }
  CHECK_FALSE(OneFile(R"({"instruction":"I","output":"O"})").first(skip).unanswered);
  CHECK(error(R"({"instruction":"I","response":"O"})", skip).find("expected the field output") != std::string::npos);
}

TEST_CASE("record_reader: the records of one file are of one kind") {
  const std::string text = R"({"text":"t"})", talk = R"({"prompt":"p","completion":"c"})",
                    tokens = R"({"input_ids":[1],"labels":[1]})";
  CHECK(error(text + "\n\n" + talk) ==
        "d.jsonl:3: a conversation, but the file begins with a text; the records of one file must be of one kind");
  CHECK(error(tokens + "\n" + text) ==
        "d.jsonl:2: a text, but the file begins with tokens; the records of one file must be of one kind");
  CHECK(error(talk + "\n" + tokens) ==
        "d.jsonl:2: tokens, but the file begins with a conversation; the records of one file must be of one kind");
  CHECK(error(talk + "\n" + R"({"instruction":"I","output":"O"})") == "nothing was thrown");
  const OneFile a(text), b(talk, "e.jsonl"), c("line", "f.txt");
  const std::vector<std::string> paths{a.path.string(), b.path.string(), c.path.string()};
  const auto all = data::Dataset::open(paths);
  CHECK(all.kinds() == std::vector{Sample::Kind::text, Sample::Kind::messages, Sample::Kind::text});
  CHECK(all.kind_of(1) == Sample::Kind::messages);
}

TEST_CASE("record_reader: pairs may have a system text and earlier rounds, as alpaca's records") {
  const auto turns = OneFile(R"({"prompt":"P","completion":"C","system":"S","history":[["a","b"]]})").first().messages;
  REQUIRE(turns.size() == 5);
  CHECK(turns[0].role == "system");
  CHECK(turns[2].content == "b");
  CHECK(turns[4].content == "C");
}

TEST_CASE("record_reader: objects over several lines, and data inside an object, get a message that fits") {
  const std::string record = "{\n  \"instruction\": \"I\",\n  \"output\": \"O\"\n}\n";
  const std::string expected =
      "d.jsonl: the file begins with an object over several lines; expected an array of records, or a record per line";
  CHECK(error(record) == expected);
  CHECK(error(record + record) == expected);
  CHECK(error("{\n \"version\": 1,\n \"data\": [" + record + "]\n}") ==
        expected + "; the field data holds such an array");
  CHECK(error("{\n\"messages\":[{\"role\":\"user\",\"content\":\"u\"}]}") == expected);
  CHECK(error(R"({"data":[{"text":"t"}]})")
            .ends_with("or text; data holds records: a file is such an array itself, or has a record per line"));
  // A line that is broken stays one.
  CHECK(error("{\"text\":\"t\n{\"text\":\"u\"}\n").starts_with("d.jsonl:1:"));
  CHECK(error("{\"text\":\n{\"text\":\"u\"}\n").starts_with("d.jsonl:1:"));
}

TEST_CASE("record_reader: a record of an unknown kind lists its fields, but not hundreds") {
  std::string many = "{";
  for (int i = 0; i < 300; ++i) many += (i > 0 ? ",\"f" : "\"f") + std::to_string(i) + "\":1";
  const std::string message = error(many + "}");
  CHECK(test::holds(message, "f18, f19, ...; expected instruction"));
  CHECK_FALSE(test::holds(message, "f20"));
}

}  // namespace record_reader_test
