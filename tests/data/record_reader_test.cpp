#include "lora/data/records/record_reader.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
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

/// The fields of a record that nothing reads.
Names unused_of(const std::string& record, const DatasetOptions& options = {}) {
  const OneFile file(record);
  const auto dataset = file.open(options);
  static_cast<void>(dataset[0]);
  return dataset.take_unused_fields();
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
      CHECK(unused_of(record) == (record.starts_with("{\"text\"") ? Names{field} : Names{}));
    for (const std::string value : {"0", "0.0", "\"false\"", "\"False\"", "\"0\""})
      CHECK(error(each_kind_with("\"" + field + "\":" + value).front())
                .starts_with("d.jsonl:1: \"" + field + "\" is " + value));
    for (const std::string value : {"1", "\"news\"", "null"})
      CHECK(error(each_kind_with("\"" + field + "\":" + value).front()) == "nothing was thrown");
  }
  for (const std::string field : {"rejected_response", "rejected_messages"}) {
    CHECK(error(each_kind_with("\"" + field + "\":\"no\"")[1]) ==
          "d.jsonl:1: " + field + (field.ends_with('s') ? " are" : " is") +
              " preference data, which is not supported; expected good answers only");
    CHECK(unused_of(each_kind_with("\"" + field + "\":null")[1]) == Names{field});
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
  CHECK(turn(R"("function_call":[1])") ==
        "d.jsonl:1: messages[1]: function_call is not supported; expected tool_calls");
  const OneFile nothing_seen(
      R"({"messages":[{"role":"user","content":"u","images":[]},{"role":"assistant","content":"a",)"
      R"("function_call":{},"video":"","note":1}]})");
  const auto unseen = nothing_seen.open();
  static_cast<void>(unseen[0]);
  CHECK(unseen.take_unused_fields() == Names{"messages[].note"});
}

TEST_CASE("record_reader: a weight of 0 means not learned, of a record or a turn") {
  for (const std::string& record : each_kind_with(R"("weight":0)")) CHECK_FALSE(OneFile(record).first().learned);
  for (const std::string& record : each_kind_with(R"("weight":1.0)")) CHECK(OneFile(record).first().learned);
  for (const char* weight : {"0.5", "2", "-1", R"("0")", "[0]"})
    for (const std::string& record : each_kind_with(std::string("\"weight\":") + weight))
      CHECK(error(record) == std::string("d.jsonl:1: \"weight\" is ") + weight + "; expected true, false, 0 or 1");

  const auto turns =
      OneFile(R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a","weight":0},)"
              R"({"role":"user","content":"v"},{"role":"assistant","content":"b","weight":1}]})")
          .first()
          .messages;
  CHECK(turns[0].learned);
  CHECK_FALSE(turns[1].learned);
  CHECK(turns[3].learned);
  CHECK(error(R"({"conversations":[{"from":"gpt","value":"a","weight":0.5}]})") ==
        "d.jsonl:1: conversations[0]: \"weight\" is 0.5; expected true, false, 0 or 1");
}

TEST_CASE("record_reader: what is learned is said as other trainers say it, of a record or a turn in any spelling") {
  const auto turns = [](const std::string& mark, const std::string& role = "assistant") {
    const auto of = [&](const char* one) { return role == one ? "," + mark : std::string(); };
    const std::string sharegpt_roles[] = {"human", "gpt"};
    return Names{R"({"messages":[{"role":"user","content":"U")" + of("user") +
                     R"(},{"role":"assistant","content":"A")" + of("assistant") + "}]}",
                 R"({"conversations":[{"from":"human","value":"U")" + of("user") + R"(},{"from":"gpt","value":"A")" +
                     of("assistant") + "}]}"};
  };
  for (const std::string field :
       {"weight", "loss", "train", "training", "trainable", "learn", "loss_mask", "loss_scale", "masked"}) {
    CAPTURE(field);
    const bool inverted = field == "masked";
    for (const std::string value : {"true", "1", "1.0", "false", "0", "0.0", "null"}) {
      CAPTURE(value);
      const std::string mark = "\"" + field + "\":" + value;
      const bool says_true = value == "true" || value.starts_with("1");
      const bool learned = value == "null" || says_true != inverted;
      for (const std::string& record : each_kind_with(mark)) {
        const OneFile file(record);
        const auto dataset = file.open();
        CHECK(dataset[0].learned == learned);
        CHECK(dataset.take_unused_fields().empty());
      }
      for (const std::string& record : turns(mark)) {
        const OneFile file(record);
        const auto dataset = file.open();
        CHECK(dataset[0].messages[1].learned == learned);
        CHECK(dataset[0].messages[0].learned);
        CHECK(dataset.take_unused_fields().empty());
      }
      for (const std::string& record : turns(mark, "user")) {
        const bool asks = value != "null" && learned;
        CHECK(error(record) ==
              (asks ? "d.jsonl:1: " + record.substr(2, record.find('"', 2) - 2) + "[0]: \"" + field +
                          "\" says that a turn of the user is learned; expected that of the assistant's turns only"
                    : "nothing was thrown"));
        if (!asks) CHECK(OneFile(record).first().messages[0].learned == (value == "null"));
      }
    }
    for (const std::string value : {"0.5", "2", "-1", "\"false\"", "[0]", "{}"})
      for (const std::string& record : turns("\"" + field + "\":" + value))
        CHECK(error(record).ends_with("[1]: \"" + field + "\" is " + value + "; expected true, false, 0 or 1"));
  }
  for (const std::string both : {R"("loss":false,"weight":1)", R"("train":1,"masked":true)"})
    CHECK(error(turns(both)[0]).ends_with("contradict each other: one says learned, one not"));
  CHECK_FALSE(OneFile(turns(R"("loss":false,"weight":0,"masked":true)")[0]).first().messages[1].learned);
  for (const std::string field : {"mask", "train_detail", "completion_mask", "assistant_masks"}) {
    for (const std::string& record : each_kind_with("\"" + field + "\":true"))
      CHECK(error(record).starts_with("d.jsonl:1: \"" + field + "\", which "));
    for (const std::string& record : turns("\"" + field + "\":[0]"))
      CHECK(error(record).find("[1]: \"" + field + "\", which ") != std::string::npos);
    for (const std::string& record : each_kind_with("\"" + field + "\":null")) {
      CHECK(error(record) == "nothing was thrown");
      CHECK(unused_of(record).empty());
    }
  }
}

TEST_CASE("record_reader: a field that the user gives a meaning is no mark") {
  CHECK(OneFile(R"({"instruction":"I","output":"O","train":"easy"})").first({.label_field = "train"}).label == "easy");
  CHECK(OneFile(R"({"instruction":"I","output":"O","loss":0})").first({.label_field = "loss"}).learned);
  CHECK(OneFile(R"({"mask":"a text"})").first({.text_column = "mask"}).text == "a text");
  for (const std::string field : {"label", "kto_tag", "images", "rejected_response", "system_prompt"}) {
    CAPTURE(field);
    const OneFile file(R"({"prompt":"P","completion":"C",")" + field + R"(":"false"})");
    const auto dataset = file.open({.label_field = field});
    CHECK(dataset[0].label == "false");
    CHECK(dataset.take_unused_fields().empty());
  }
}

TEST_CASE("record_reader: an alpaca question joins what is not empty of instruction and input") {
  const auto asked = [](const std::string& fields) {
    const auto turns = OneFile("{" + fields + R"(,"output":"O"})").first().messages;
    return turns[turns.size() - 2].content;
  };
  CHECK(asked(R"("instruction":"I","input":"J")") == "I\nJ");
  for (const char* empty : {R"("")", "null"}) {
    CAPTURE(empty);
    const std::string nothing = empty;
    CHECK(asked(R"("instruction":"I","input":)" + nothing) == "I");
    CHECK(asked(R"("instruction":)" + nothing + R"(,"input":"J")") == "J");
    CHECK(asked(R"("instruction":)" + nothing + R"(,"input":"J","history":[["a","b"]])") == "J");
  }
  CHECK(asked(R"("instruction":"")") == "");
  const auto null = [&](const char* record, const DatasetOptions& options = {}) {
    const std::string said = error(record, options), of = "d.jsonl:1: a record with the keys ";
    return said.starts_with(of) ? said.substr(of.size(), said.find("; expected") - of.size()) : said;
  };
  CHECK(null(R"({"instruction":null,"output":"O"})") == "instruction, output, of which instruction is null");
  CHECK(null(R"({"a":null,"messages":null})") == "a, messages, of which messages is null");
  CHECK(null(R"({"text":null})") == "text, of which text is null");
  CHECK(null(R"({"text":null})", {.text_column = "body"}) == "text");
  CHECK(null(R"({"body":null})", {.text_column = "body"}) == "body, of which body is null");
  for (const char* history : {"null", "[]", R"("")", R"("[]")"})
    CHECK(
        OneFile(R"({"instruction":"I","output":"O","history":)" + std::string(history) + "}").first().messages.size() ==
        2);
}

TEST_CASE("record_reader: other spellings of turns, pairs and system texts are read, two at once are refused") {
  const auto turns = OneFile(R"({"conversations":[{"role":"user","value":"U"},{"from":"chatbot","content":"A"},)"
                             R"({"from":"tool_response","value":"T"},{"from":"bot","value":"B"}]})")
                         .first()
                         .messages;
  REQUIRE(turns.size() == 4);
  CHECK(turns[0].role == "user");
  CHECK(turns[0].content == "U");
  CHECK(turns[1].role == "assistant");
  CHECK(turns[1].content == "A");
  CHECK(turns[2].role == "tool");
  CHECK(turns[3].role == "assistant");
  const std::string from = R"({"from":"gpt","value":"A"}]})";
  CHECK(error(R"({"messages":[{"role":"user","from":"human","content":"U"},)" + from) ==
        "d.jsonl:1: messages[0]: \"from\" stands beside \"role\"; expected one of the two");
  CHECK(error(R"({"messages":[{"role":"user","value":"V","content":"U"},)" + from) ==
        "d.jsonl:1: messages[0]: \"value\" stands beside \"content\"; expected one of the two");
  CHECK(error(R"({"messages":[{"from":"human","value":"V","content":null},)" + from) == "nothing was thrown");

  const auto query = OneFile(R"({"query":"Q","response":"R","history":[["a","b"]]})").first();
  REQUIRE(query.messages.size() == 4);
  CHECK(query.messages[2].content == "Q");
  CHECK(query.answer() == "R");
  CHECK(OneFile(R"({"text":"T","query":"Q"})").first().text == "T");
  CHECK(error(R"({"query":"Q","output":"R"})") ==
        "d.jsonl:1: the record has no answer; expected the field response, found query, output");

  for (const char* record :
       {R"({"instruction":"I","output":"O","system_prompt":"S"})",
        R"({"messages":[{"role":"user","content":"U"},{"role":"assistant","content":"A"}],"system_prompt":"S"})"}) {
    const OneFile file(record);
    const auto dataset = file.open();
    CHECK(dataset[0].messages[0].role == "system");
    CHECK(dataset[0].messages[0].content == "S");
    CHECK(dataset.take_unused_fields().empty());
  }
  CHECK(error(R"({"instruction":"I","output":"O","system":"S","system_prompt":"S"})") ==
        "d.jsonl:1: \"system\" stands beside \"system_prompt\"; expected one of the two");
  CHECK(error(R"({"system":"S","messages":[{"role":"system","content":"T"},{"role":"assistant","content":"A"}]})") ==
        "d.jsonl:1: messages[0]: a system turn stands beside the record's \"system\"; expected one of the two");
}

TEST_CASE("record_reader: a content of one text part is that text, other contents say what they are") {
  const auto content = [](const std::string& value) {
    return R"({"messages":[{"role":"user","content":)" + value + R"(},{"role":"assistant","content":"A"}]})";
  };
  CHECK(OneFile(content(R"([{"type":"text","text":"x"}])")).first().messages[0].content == "x");
  const std::string place = "d.jsonl:1: messages[0]: ";
  CHECK(error(content(R"([{"type":"text","text":"x"},{"type":"text","text":"y"}])")) ==
        place + "content: 2 parts; expected one: templates differ in how they join several");
  CHECK(error(content("[]")).starts_with(place + "content: 0 parts; "));
  CHECK(error(content(R"([{"type":"image_url","image_url":"u"}])")) ==
        place + R"(content: part 1 is {"type":"image_url","image_url":"u"}; expected {"type": "text", "text": ...})");
  CHECK(error(content(R"(["x"])")) == place + R"(content: part 1 is "x"; expected {"type": "text", "text": ...})");
  CHECK(error(content(R"([{"type":"text","text":7}])")) == place + "content[0]: \"text\" must be a string, found 7");
  CHECK(error(content("3")) == place + "\"content\" must be a string, found 3");
  CHECK(error(content("null")) == place + "\"content\" is null");
}

TEST_CASE("record_reader: a token is an id, and only a label may be none") {
  CHECK(error(R"({"input_ids":[1,-100],"labels":[1,-100]})") ==
        "d.jsonl:1: input_ids[1] is -100; expected an id from 0 on: only labels may be -100");
  CHECK(error(R"({"input_ids":[-1,2],"labels":[1,2]})") == "d.jsonl:1: input_ids[0] is -1; expected an id from 0 on");
  CHECK(error(R"({"input_ids":[1,2],"labels":[-100,2]})") == "nothing was thrown");
  CHECK(error(R"({"input_ids":[-100]})", {.need_answer = false}).starts_with("d.jsonl:1: input_ids[0] is -100;"));
}

TEST_CASE("record_reader: a mask that hides tokens is refused") {
  CHECK(error(R"({"input_ids":[1,2],"labels":[1,2],"attention_mask":[1,1]})") == "nothing was thrown");
  for (const char* mask : {"[1,0]", "[1]", "[0,1]", "[1,1,1]", "[2,1]"})
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

  // What one kind of record has is only unused in another.
  const std::pair<const char*, Names> others[] = {
      {R"({"text":"T","system":"S","history":[["a","b"]],"system_prompt":"P","kto_tag":false})",
       {"history", "kto_tag", "system", "system_prompt"}},
      {R"({"prompt":"P","completion":"C","input":"X","output":"O"})", {"input", "output"}},
      {R"({"question":"Q","answer":"A","completion":"C","system":"S"})", {"completion"}},
      {R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a"}],"history":[]})", {"history"}},
      {R"({"input_ids":[1],"labels":[1],"attention_mask":[1],"system":"S"})", {"system"}}};
  for (const auto& other : others) {
    const OneFile with_more(other.first);
    const auto opened = with_more.open();
    static_cast<void>(opened[0]);
    CHECK(opened.take_unused_fields() == other.second);
  }

  // What each kind has is used, whatever the kind.
  const std::string user = R"([{"role":"user","content":"u"}])",
                    talk = R"([{"role":"user","content":"u"},{"role":"assistant","content":"a"}])",
                    thought = R"([{"role":"assistant","content":"a","reasoning_content":"so","tool_calls":[]}])";
  for (const std::string fields : {R"("instruction":"I","input":"X","output":"O","history":[["a","b"]])",
                                   R"("prompt":"P","completion":"C","history":[["a","b"]])",
                                   R"("question":"Q","answer":"A","history":[["a","b"]])",
                                   R"("query":"Q","response":"R","history":[["a","b"]])"}) {
    CAPTURE(fields);
    const std::string record = "{" + fields + R"(,"system":"S"})";
    CHECK(unused_of(record).empty());
    const auto turns = OneFile(record).first().messages;
    REQUIRE(turns.size() == 5);
    CHECK(turns[0].role == "system");
    CHECK(turns[0].content == "S");
  }
  for (const std::string& record :
       {R"({"system":"S","messages":)" + talk + "}", R"({"system":"S","conversations":)" + talk + "}",
        R"({"messages":)" + thought + "}", R"({"system":"S","prompt":)" + user + R"(,"completion":)" + thought + "}",
        std::string(R"({"input_ids":[1],"labels":[1],"attention_mask":[1]})")}) {
    CAPTURE(record);
    CHECK(unused_of(record).empty());
  }

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

TEST_CASE("record_reader: of a prompt and a completion that are turns, the completion's are learned alone") {
  const std::string user = R"({"role":"user","content":"U"})", answer = R"({"role":"assistant","content":"A"})",
                    system = R"({"role":"system","content":"S"})", tool = R"({"role":"tool","content":"T"})";
  const auto record = [](const std::string& prompt, const std::string& completion, const std::string& more = "") {
    return "{\"prompt\":" + prompt + ",\"completion\":" + completion + more + "}";
  };
  const auto list = [](const std::vector<std::string>& turns) {
    std::string text;
    for (const std::string& turn : turns) text += (text.empty() ? "[" : ",") + turn;
    return text.empty() ? "[]" : text + "]";
  };
  const auto turns = OneFile(record(list({system, user, answer, user}), list({answer, tool, answer}))).first().messages;
  REQUIRE(turns.size() == 7);
  const std::vector<std::string> roles = {"system", "user", "assistant", "user", "assistant", "tool", "assistant"};
  const std::vector<bool> learned = {true, true, false, true, true, true, true};
  for (std::size_t i = 0; i < turns.size(); ++i) {
    CHECK(turns[i].role == roles[i]);
    CHECK(turns[i].learned == learned[i]);
  }
  CHECK(OneFile(record(list({user}), list({answer}), R"(,"system":"S")")).first().messages[0].content == "S");
  CHECK(OneFile(record(list({user}), list({answer}))).first().answer() == "A");
  CHECK(OneFile("{\"prompt\":" + list({user}) + "}").first({.need_answer = false}).messages.size() == 1);

  CHECK(error(record(list({user}), "\"A\"")) ==
        "d.jsonl:1: \"completion\" is no list of turns, but \"prompt\" is; expected texts or lists of turns in both");
  CHECK(error(record("\"U\"", list({answer}))) ==
        "d.jsonl:1: \"prompt\" is no list of turns, but \"completion\" is; expected texts or lists of turns in both");
  CHECK(error(record(list({user, answer}), list({answer}))) ==
        "d.jsonl:1: \"prompt\" ends with a turn of the assistant; expected one of the user, or a tool's");
  CHECK(error(record("[]", list({answer})))
            .ends_with("\"prompt\" ends with no turn; expected one of the user, or a tool's"));
  CHECK(error(record(list({user}), list({user, answer}))) ==
        "d.jsonl:1: \"completion\" begins with a turn of the user; expected the assistant's");
  CHECK(error(record(list({user}), list({answer, system})))
            .ends_with("stands in \"completion\"; expected it in \"prompt\""));
  CHECK(error(record(list({user}), "[]")) ==
        "d.jsonl:1: the record has no answer; expected a turn of the assistant with a text");
  // An answer in the prompt is none of the record's.
  for (const std::string completion : {"[]", R"([{"role":"assistant","content":""}])"}) {
    const std::string unanswered = record(list({user, answer, user}), completion);
    CHECK(error(unanswered) == "d.jsonl:1: the record has no answer; expected a turn of the assistant with a text");
    CHECK(OneFile(unanswered).first({.skip_empty_answers = true}).unanswered);
  }
  CHECK(error("{\"prompt\":" + list({user}) + "}") ==
        "d.jsonl:1: the record has no answer; expected the field completion, found prompt");
  CHECK(error(record(list({user}), list({answer}), R"(,"history":[["a","b"]])"))
            .ends_with("\"history\" stands beside turns; expected it among the turns of \"prompt\""));
  const OneFile named(record(list({R"({"role":"user","content":"U","name":"n"})"}), list({answer})));
  const auto dataset = named.open();
  static_cast<void>(dataset[0]);
  CHECK(dataset.take_unused_fields() == Names{"prompt[].name"});
}

TEST_CASE("record_reader: objects over several lines, and data inside an object, get a message that fits") {
  const std::string record = "{\n  \"instruction\": \"I\",\n  \"output\": \"O\"\n}\n";
  const std::string expected =
      "d.jsonl: the file begins with an object over several lines; expected an array of records, or a record per line";
  CHECK(error(record) == expected);
  CHECK(error(record + record) == expected);
  CHECK(error("\n\n  " + record + record) == expected);
  CHECK(error("{\n \"version\": 1,\n \"data\": [" + record + "]\n}") ==
        expected + "; the field data holds such an array");
  CHECK(error("{\n\"messages\":[{\"role\":\"user\",\"content\":\"u\"}]}") == expected);
  CHECK(error(R"({"data":[{"text":"t"}]})")
            .ends_with("or text; data holds records: a file is such an array itself, or has a record per line"));
  CHECK(error(R"({"segments":[{"label":true,"text":"t"}]})")
            .ends_with("or text; segments, axolotl's input_output, can be written as input_ids and labels"));
  CHECK(error(R"({"conversation":[{"human":"t","assistant":"u"}]})")
            .ends_with("or text; conversation can be written as conversations, with from and value"));
  for (const char* whole : {R"({"data":{"a":{"text":"t"}}})", R"({"data":[]})", R"({"data":[1]})"})
    CHECK(error(whole).ends_with("input_ids and labels, or text"));
  CHECK(error(R"({"some":[{"text":"t"}],"more":[{"text":"t"}]})")
            .ends_with("or text; some holds records: a file is such an array itself, or has a record per line"));
  CHECK(error(R"({"segments":[{"label":true}],"data":[{"text":"t"}]})")
            .ends_with("; segments, axolotl's input_output, can be written as input_ids and labels"));
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

TEST_CASE("record_reader: each mark that can't be taken says why and what to write, and contradictions name both") {
  const std::pair<std::string, std::string> refused[] = {
      {"mask",
       R"(which hides what it names with some trainers and keeps it with others; expected "loss" true or false)"},
      {"train_detail", R"(which marks parts of a turn; expected "train" true or false of a whole one)"},
      {"completion_mask", "which is not supported; expected labels, -100 where nothing is learned"},
      {"assistant_masks", "which is not supported; expected labels, -100 where nothing is learned"}};
  for (const auto& mark : refused)
    CHECK(error(R"({"text":"T",")" + mark.first + R"(":[1]})") == "d.jsonl:1: \"" + mark.first + "\", " + mark.second);
  CHECK(error(R"({"text":"T","masked":true,"loss":1,"train":0})") ==
        "d.jsonl:1: \"loss\" and \"train\" contradict each other: one says learned, one not");
  CHECK(error(R"({"text":"T","weight":1,"masked":true})") ==
        "d.jsonl:1: \"weight\" and \"masked\" contradict each other: one says learned, one not");
}

TEST_CASE("record_reader: a record of an unknown kind is told with its fields and all that could be one") {
  const std::string kinds =
      "; expected instruction and output, messages, conversations, prompt and completion, question and answer, query "
      "and response, input_ids and labels, or ";
  CHECK(error(R"({"foo":1,"bar":2})") == "d.jsonl:1: a record with the keys foo, bar" + kinds + "text");
  CHECK(error(R"({"text":1})", {.text_column = "body"}) == "d.jsonl:1: a record with the keys text" + kinds + "body");
  CHECK(error("{}") == "d.jsonl:1: a record with the keys (none)" + kinds + "text");
  std::string twenty = "{", names;
  for (int i = 0; i < 20; ++i) {
    twenty += (i > 0 ? ",\"f" : "\"f") + std::to_string(i) + "\":1";
    names += (i > 0 ? ", f" : "f") + std::to_string(i);
  }
  CHECK(error(twenty + "}") == "d.jsonl:1: a record with the keys " + names + kinds + "text");
  CHECK(error(twenty + ",\"g\":1}") == "d.jsonl:1: a record with the keys " + names + ", ..." + kinds + "text");
  CHECK(error("[1]\n") == "d.jsonl:1:2: expected a record {...}, found 1");
  const std::string preference =
      "d.jsonl:1: chosen and rejected are preference data, which are not supported; expected one answer, such as "
      "prompt and completion";
  CHECK(error(R"({"chosen":"a","rejected":"b"})") == preference);
  CHECK(error(R"({"text":"t","chosen":"a"})") == "nothing was thrown");
  CHECK(error(R"({"text":"t","rejected":"a"})") == "nothing was thrown");
}

TEST_CASE("record_reader: a class is a text, or what JSON prints of a number or truth value") {
  const DatasetOptions by_level{.label_field = "level"};
  const auto label = [&](const std::string& value) {
    return OneFile(R"({"text":"t","level":)" + value + "}").first(by_level).label.value_or("none");
  };
  CHECK(label(R"("hard")") == "hard");
  CHECK(label(R"("")") == "");
  CHECK(label("3") == "3");
  CHECK(label("-2.5") == "-2.5");
  CHECK(label("true") == "true");
  CHECK(label("false") == "false");
  CHECK(label("null") == "none");
  CHECK_FALSE(OneFile(R"({"text":"t"})").first(by_level).label);
  CHECK_FALSE(OneFile(R"({"text":"t","level":"hard"})").first().label);
  const std::string rest = ", which can't name a class; expected a text or a number";
  CHECK(error(R"({"text":"t","level":["a"]})", by_level) == "d.jsonl:1: \"level\" is array" + rest);
  CHECK(error(R"({"text":"t","level":{}})", by_level) == "d.jsonl:1: \"level\" is object" + rest);
}

TEST_CASE("record_reader: what turns, rounds and roles can't be is said in full") {
  const auto turns = [](const std::string& list) { return error(R"({"messages":[)" + list + "]}"); };
  const std::string answer = R"({"role":"assistant","content":"A"})", user = R"({"role":"user","content":"U"})";
  CHECK(turns(R"("hello",)" + answer) == "d.jsonl:1: messages[0]: expected an object with role and content");
  CHECK(turns(user + R"(,{"role":"function_call","content":"{}"})") ==
        "d.jsonl:1: messages[1]: the role \"function_call\" stands beside from and value only; expected an "
        "assistant's tool_calls");
  CHECK(turns(user + R"(,{"content":"A"})") == "d.jsonl:1: messages[1]: \"role\" is missing");
  CHECK(turns(R"({"from":"human"},)" + answer) == "d.jsonl:1: messages[0]: \"value\" is missing");
  CHECK(error(R"({"instruction":"I","output":"O","history":[["a","b","c"]]})") ==
        "d.jsonl:1: a round of history has 3 texts, not 2");
  const std::string system = R"({"role":"system","content":"S"})";
  const auto pair = [](const std::string& prompt, const std::string& completion, const std::string& more = "") {
    return error(R"({"prompt":[)" + prompt + R"(],"completion":[)" + completion + "]" + more + "}");
  };
  CHECK(pair(user, answer + "," + system) ==
        "d.jsonl:1: completion[1]: a system turn stands in \"completion\"; expected it in \"prompt\"");
  CHECK(pair(system + "," + user, answer, R"(,"system":"T")") ==
        "d.jsonl:1: prompt[0]: a system turn stands beside the record's \"system\"; expected one of the two");
  CHECK(pair(user + "," + system, answer) ==
        "d.jsonl:1: \"prompt\" ends with a turn of the system; expected one of the user, or a tool's");
  CHECK(pair("", answer) == "d.jsonl:1: \"prompt\" ends with no turn; expected one of the user, or a tool's");
  CHECK(pair(user, answer, R"(,"history":[["a","b"]])") ==
        "d.jsonl:1: \"history\" stands beside turns; expected it among the turns of \"prompt\"");
  CHECK(pair(user, answer, R"(,"history":[])") == "nothing was thrown");
  CHECK(pair(R"({"role":"tool","content":"T"})", answer) == "nothing was thrown");
  const std::pair<std::string, std::string> roles[] = {
      {"system", "system"},    {"user", "user"},         {"assistant", "assistant"}, {"tool", "tool"},
      {"human", "user"},       {"gpt", "assistant"},     {"bot", "assistant"},       {"chatbot", "assistant"},
      {"observation", "tool"}, {"tool_response", "tool"}};
  for (const auto& role : roles) {
    CAPTURE(role.first);
    const OneFile file(R"({"messages":[{"role":")" + role.first + R"(","content":"x"},)" + answer + "]}");
    CHECK(file.first().messages[0].role == role.second);
  }
}

TEST_CASE("record_reader: tokens that are only a prompt have no labels, and nothing is a text that says so") {
  const auto sample = OneFile(R"({"input_ids":[4,5]})").first({.need_answer = false});
  CHECK(sample.tokens == std::vector<std::int32_t>{4, 5});
  CHECK(sample.labels == std::vector<std::int32_t>{-100, -100});
  for (const char* nothing : {R"("null")", R"("  {} ")", R"("\n")"})
    CHECK(error(R"({"text":"T","tools":)" + std::string(nothing) + "}") == "nothing was thrown");
  for (const char* something : {R"("x")", "0", "false", R"("[1]")"})
    CHECK(error(R"({"text":"T","tools":)" + std::string(something) + "}") == "d.jsonl:1: tools are not supported");
}

}  // namespace record_reader_test
