#include "lora/data/records/dataset.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/core/log.hpp"
#include "lora/core/random.hpp"
#include "lora/io/files/file.hpp"
#include "support/message_of.hpp"
#include "support/one_file.hpp"
#include "support/temp_folder.hpp"

namespace dataset_test {

using namespace lora;
using data::Dataset;
using data::DatasetOptions;
using data::Sample;
using test::OneFile;
using test::turns_of;

TEST_CASE("dataset: alpaca records become turns, the input on a line of its own") {
  CHECK(turns_of(OneFile(R"({"instruction":"I","input":"X","output":"O"})").first()) == "user=I\nX|assistant=O|");
  CHECK(turns_of(OneFile(R"({"instruction":"I","input":"","output":"O"})").first()) == "user=I|assistant=O|");
  // Of records that have it: elsewhere the field plays no part.
  CHECK(turns_of(OneFile(R"({"prompt":"P","input":"X","completion":"C"})").first()) == "user=P|assistant=C|");
  CHECK(
      turns_of(OneFile(R"({"instruction":"I","input":null,"output":"O","system":"S","history":[["a","b"],["c","d"]]})")
                   .first()) == "system=S|user=a|assistant=b|user=c|assistant=d|user=I|assistant=O|");
}

TEST_CASE("dataset: messages and sharegpt records keep their turns") {
  const auto messages = OneFile(R"([{"messages":[{"role":"system","content":"S"},{"role":"user","content":"U"},
      {"role":"tool","content":"T"},{"role":"assistant","content":"A","reasoning_content":"R"}]}])")
                            .first();
  CHECK(turns_of(messages) == "system=S|user=U|tool=T|assistant=A|");
  CHECK(messages.messages[3].reasoning == "R");
  CHECK_FALSE(messages.messages[1].reasoning.has_value());
  const auto sharegpt = OneFile(R"([{"system":"S","conversations":[{"from":"human","value":"H"},
      {"from":"gpt","value":"G"},{"from":"observation","value":"O"},{"from":"gpt","value":"G2"}]}])")
                            .first();
  CHECK(turns_of(sharegpt) == "system=S|user=H|assistant=G|tool=O|assistant=G2|");
}

TEST_CASE("dataset: pairs, texts and tokens") {
  CHECK(turns_of(OneFile(R"({"prompt":"P","completion":"C"})").first()) == "user=P|assistant=C|");
  CHECK(turns_of(OneFile(R"({"question":"Q","answer":"A"})").first()) == "user=Q|assistant=A|");
  const auto text = OneFile(R"({"text":"plain"})").first();
  CHECK(text.kind == Sample::Kind::text);
  CHECK(text.text == "plain");
  DatasetOptions column;
  column.text_column = "body";
  CHECK(OneFile(R"({"body":"b"})").first(column).text == "b");
  const auto tokens = OneFile(R"({"input_ids":[1,2,3],"labels":[-100,2,3]})").first();
  CHECK(tokens.kind == Sample::Kind::tokens);
  CHECK(tokens.tokens == std::vector<std::int32_t>{1, 2, 3});
  CHECK(tokens.labels == std::vector<std::int32_t>{-100, 2, 3});
}

TEST_CASE("dataset: a .txt file holds a text per line") {
  const OneFile file("\xEF\xBB\xBFone\r\n\n  \n[two]\nthree", "d.txt");
  const Dataset dataset = file.open();
  REQUIRE(dataset.size() == 3);
  CHECK(dataset[0].kind == Sample::Kind::text);
  CHECK(dataset[0].text == "one");
  CHECK(dataset[1].text == "[two]");
  CHECK(dataset[2].text == "three");
  CHECK(dataset[1].where == file.path.string() + ":4");
}

TEST_CASE("dataset: of a .txt file that begins with a record of JSON it is told that it is learned as it stands") {
  const auto told = [](const std::string& content) {
    std::string all;
    const log::Redirect redirect([&](log::Level, std::string_view line) { all += line; });
    const OneFile file(content, "d.txt");
    const Dataset dataset = file.open();
    CHECK(dataset[0].text == content.substr(0, content.find('\n')));
    return all;
  };
  CHECK(
      test::holds(told("{\"text\": \"a\"}\nb"), "d.txt: its first line is a record of JSON, but of a .txt file each"));
  CHECK(told("{\"text\": \nb").empty());
  CHECK(told("a\n{\"text\": \"a\"}").empty());
  CHECK(told("1").empty());
}

TEST_CASE("dataset: an array is read like lines, whatever its strings hold") {
  const OneFile file(
      "\n [ {\"question\": \"a ] } \\\" \\\\\", \"answer\": \"[{\"},\n\n{\"question\":\"q\",\n\"answer\":"
      "\"b\",\"x\":[{},[]]} ]\n\n",
      "d.json");
  const Dataset dataset = file.open();
  REQUIRE(dataset.size() == 2);
  CHECK(turns_of(dataset[0]) == "user=a ] } \" \\|assistant=[{|");
  CHECK(turns_of(dataset[1]) == "user=q|assistant=b|");
  CHECK(dataset[1].where == file.path.string() + ":4");
  CHECK(dataset[1].record == 1);
}

TEST_CASE("dataset: several files follow each other, and max_samples takes the first records") {
  const OneFile a("{\"text\":\"1\"}\n{\"text\":\"2\"}\n"), b("[{\"text\":\"3\"}]", "b.json");
  const std::vector<std::string> paths{a.path.string(), b.path.string()};
  const auto all = Dataset::open(paths);
  REQUIRE(all.size() == 3);
  CHECK(all[2].text == "3");
  CHECK(all[2].where == b.path.string() + ":1");
  DatasetOptions two;
  two.max_samples = 2;
  const auto some = Dataset::open(paths, two);
  CHECK(some.size() == 2);
  CHECK(some.fingerprint() != all.fingerprint());
  CHECK(Dataset::open(paths).fingerprint() == all.fingerprint());
  std::vector<data::DataFile> files{data::DataFile(paths[0]), data::DataFile(paths[1])};
  files[0].max_samples = 1;
  for (const Index most : {Index{1}, Index{7}, std::numeric_limits<Index>::max()}) {
    files[1].max_samples = most;
    const auto taken = Dataset::open(files);
    REQUIRE(taken.size() == 2);
    CHECK(taken[0].text == "1");
    CHECK(taken[1].text == "3");
  }
  for (const Index none : {0, -1}) {
    files[1].max_samples = none;
    CHECK(Dataset::open(files).size() == 1);
    DatasetOptions nothing;
    nothing.max_samples = none;
    CHECK(Dataset::open(paths, nothing).size() == 0);
  }
  files[0].max_samples = 0;
  files[1].max_samples = {};
  const auto later = Dataset::open(files);  // the first file has no record left
  REQUIRE(later.size() == 1);
  CHECK(later[0].text == "3");
  CHECK(later.file_number(0) == 1);
  // What a run compares when it goes on: the same from one version to the next.
  Fingerprint expected(3);
  for (const char* record : {R"({"text":"1"})", R"({"text":"2"})", R"({"text":"3"})"}) expected.add(record);
  CHECK(all.fingerprint() == expected.value());
  CHECK(OneFile("{\"text\":\"1\"}\n{\"text\":\"2\"}").open().fingerprint() == some.fingerprint());
  CHECK(OneFile("{\"text\":\"2\"}\n{\"text\":\"1\"}").open().fingerprint() != some.fingerprint());
}

TEST_CASE("dataset: of a file with fewer records than are asked for each comes as often, and some once more") {
  std::string lines;
  for (int i = 0; i < 5; ++i) lines += concat("{\"text\":\"", i, "\"}\n");
  const OneFile file(lines), other("{\"text\":\"x\"}\n", "b.jsonl");
  std::vector<data::DataFile> files{data::DataFile(other.path.string()), data::DataFile(file.path.string())};
  std::string told;
  const log::Redirect redirect([&](log::Level, std::string_view line) { told += line; });
  const auto texts = [&](const DatasetOptions& options = {}) {
    const Dataset dataset = Dataset::open(files, options);
    std::string all;
    for (Index i = 0; i < dataset.size(); ++i) {
      const Sample sample = dataset[i];
      CHECK(sample.record == i);
      CHECK(dataset.file_number(i) == (i > 0));
      CHECK(dataset.bytes_of(i) >= 12);  // of the last that is kept more
      CHECK(dataset.bytes_of(i) <= 12 + std::ssize(lines));
      CHECK(dataset[dataset.first_of(i)].where == sample.where);
      CHECK(dataset.first_of(i) <= std::min<Index>(i, 5));
      all += sample.text;
    }
    return all;
  };
  files[1].num_samples = 3;
  CHECK(texts() == "x012");
  CHECK(told.empty());
  CHECK_FALSE(Dataset::open(files).repeats());
  files[1].num_samples = 15;
  CHECK(texts() == "x012340123401234");
  CHECK(told == file.path.string() + ": 15 records are asked for and 5 are there: each comes 3 times");
  CHECK(Dataset::open(files).repeats());
  files[1].num_samples = 8;
  told.clear();
  const std::string some = texts();
  CHECK(told == file.path.string() +
                    ": 8 records are asked for and 5 are there: each comes 1 time, and 3 of them, "
                    "drawn by seed, once more");
  REQUIRE(some.size() == 9);
  CHECK(some.starts_with("x01234"));
  // The beginning of a permutation by the seed and the number of the file, whatever other files have.
  const auto drawn = permutation(5, mix_key(0, 0x726570656174u, 2));
  for (std::size_t i = 0; i < 3; ++i) CHECK(some[6 + i] == static_cast<char>('0' + drawn[i]));
  CHECK(texts() == some);
  std::set<std::string> by_seed;
  for (std::uint64_t seed = 0; seed < 20; ++seed) by_seed.insert(texts({.seed = seed}));
  CHECK(by_seed.size() > 5);
  files[1].max_samples = 7;  // of those
  CHECK(texts() == some.substr(0, 8));
  files[1].max_samples = 4;
  CHECK(texts() == "x0123");
  files[1].max_samples = {};
  CHECK(texts({.max_samples = 8}) == some.substr(0, 8));
  CHECK(texts({.max_samples = 2}) == "x0");
  files[0].num_samples = 2;
  CHECK(Dataset::open(files, {.max_samples = 1}).size() == 1);
  CHECK(Dataset::open(files).file_number(1) == 0);
  files[0].num_samples = {};
  // What is drawn is part of what a run goes on with.
  std::set<std::uint64_t> prints;
  for (const Index count : {5, 7, 8, 10}) {
    files[1].num_samples = count;
    prints.insert(Dataset::open(files).fingerprint());
  }
  files[1].num_samples = 8;
  const std::uint64_t print = Dataset::open(files).fingerprint();
  for (std::uint64_t seed = 1; seed < 9; ++seed) prints.insert(Dataset::open(files, {.seed = seed}).fingerprint());
  CHECK(prints.size() > 6);
  CHECK(prints.contains(print));
  files[1].num_samples = Index{1} << 32;
  CHECK(test::message_of<ConfigError>([&] { (void)Dataset::open(files); }) ==
        file.path.string() + ": num_samples is 4294967296; at most 4294967295 are supported");
}

TEST_CASE("dataset: a malformed record is an error with file and line") {
  const auto error = [](const std::string& content, const std::string& name = "d.jsonl") {
    return OneFile(content, name).error();
  };
  CHECK(error("{\"text\":\"t\"}\n\n{\"text\": }\n").starts_with("d.jsonl:3:10: "));
  CHECK(error("[{\"text\":\"t\"},\n {\"text\":\n tru}]", "d.json").starts_with("d.json:3:"));
  CHECK(error("{\"text\":\"t\"}\n[1]\n") == "d.jsonl:2: expected a record {...}, found array");
  CHECK(error("{\"foo\":1,\"bar\":2}").starts_with("d.jsonl:1: a record with the keys foo, bar; expected instruction"));
  CHECK(error("{\"text\":7}") == "d.jsonl:1: \"text\" must be a string, found 7");
  CHECK(error("{\"messages\":[]}") == "d.jsonl:1: the conversation has no turns");
  CHECK(error("{\"messages\":{}}") == "d.jsonl:1: \"messages\" must be an array");
  CHECK(error("{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"Bot\",\"content\":\"b\"}]}") ==
        "d.jsonl:1: messages[1]: the role \"Bot\"; expected system, user, assistant, tool, human, gpt, observation or "
        "function_call");
  CHECK(error("{\"messages\":[{\"role\":\"user\"}]}") == "d.jsonl:1: messages[0]: \"content\" is missing");
  CHECK(error("{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{}]}]}") ==
        "d.jsonl:1: messages[0]: tool_calls[0]: a tool call has no name");
  CHECK(error("{\"instruction\":\"i\",\"output\":\"o\",\"history\":[[\"a\"]]}") ==
        "d.jsonl:1: a round of history has 1 texts, not 2");
  CHECK(error("{\"input_ids\":[1,2],\"labels\":[1]}") == "d.jsonl:1: 2 input_ids but 1 labels");
  CHECK(error("{\"input_ids\":[1,2]}") == "d.jsonl:1: the record has input_ids but no labels");
  CHECK(error("{\"input_ids\":[],\"labels\":[]}") == "d.jsonl:1: input_ids is empty");
  CHECK(error("{\"input_ids\":[1],\"labels\":[-1]}") == "d.jsonl:1: the label -1; expected an id or -100");
  CHECK(error("{\"input_ids\":[99999999999],\"labels\":[1]}").starts_with("d.jsonl:1: \"input_ids[0]\" must be"));
}

TEST_CASE("dataset: what is wrong with a record without being an error of syntax has file and line too") {
  const std::string good = R"({"text": "a"})", twice = R"({"text": "a", "text": "b"})";
  CHECK(OneFile(good + "\n\n" + twice).error() == "d.jsonl:3: the key \"text\" appears twice in one object");
  CHECK(OneFile(twice + "\n").error() == "d.jsonl:1: the key \"text\" appears twice in one object");
  CHECK(OneFile("[" + good + ",\n" + twice + "]").error() == "d.jsonl:2: the key \"text\" appears twice in one object");
  CHECK(OneFile(good + "\n" + R"({"text": )" + std::string(300, '[') + std::string(300, ']') + "}").error() ==
        "d.jsonl:2: nested deeper than 200 levels");
}

TEST_CASE("dataset: arrays that are broken between records") {
  const auto error = [](const std::string& content) { return OneFile(content, "d.json").error(); };
  CHECK(error("[{\"text\":\"t\"}\n{\"text\":\"t\"}]") ==
        "d.json:2:1: expected , or ] between records after record 1, found {");
  CHECK(error("[{\"text\":\"t\"},\n]") ==
        "d.json:2:1: expected a record {...} behind the comma after record 1, found ]");
  CHECK(error("[{\"text\":\"t\"},\n 5]") ==
        "d.json:2:2: expected a record {...} behind the comma after record 1, found 5");
  CHECK(error("[5]") == "d.json:1:2: expected a record {...}, found 5");
  CHECK(error("[{\"text\":\"t\"}") ==
        "d.json:1:14: expected , or ] between records after record 1, found the end of the file");
  CHECK(error("[\n{\"text\":\"t\"},\n{\"text\":\"t\n\n") == "d.json:3:1: record 2, which begins here, has no end");
  CHECK(error("[{\"text\":\"t\"}]\n]") == "d.json:2:1: expected the end of the file after ] after record 1, found ]");
  CHECK(error("[{\"text\":\"\\") == "d.json:1:2: record 1, which begins here, has no end");
}

TEST_CASE(
    "dataset: of several records on a line each has its number, of those on lines of their own the line says it") {
  const std::string good = R"({"text":"t"})";
  const auto error = [](const std::string& content) { return OneFile(content, "d.json").error(); };
  CHECK(error("[" + good + ", " + good + ", {\"text\":7}, " + good + "]") ==
        "d.json:1: record 3 (index 2): \"text\" must be a string, found 7");
  CHECK(error("[{\"text\":7}, " + good + "]") == "d.json:1: record 1 (index 0): \"text\" must be a string, found 7");
  CHECK(error("[" + good + ",\n{\"text\":7},\n" + good + "]") == "d.json:2: \"text\" must be a string, found 7");
  CHECK(error("[" + good + ",\n" + good + ", {\"text\":7}]") ==
        "d.json:2: record 3 (index 2): \"text\" must be a string, found 7");
  CHECK(error("[" + good + ", {\"text\": tru}]").starts_with("d.json:1:28: record 2 (index 1): syntax error "));
  CHECK(error("[" + good + ",\n  {\"text\": tru}]").starts_with("d.json:2:15: syntax error "));
  CHECK(error("[" + good + ", {\"text\":\"a\", \"text\":\"b\"}]") ==
        "d.json:1: record 2 (index 1): the key \"text\" appears twice in one object");
  CHECK(error("[{\"foo\":1}, " + good + "]").starts_with("d.json:1: record 1 (index 0): a record with the keys foo;"));
  const OneFile file("[" + good + ", " + good + "]", "d.json"), second("[" + good + ", " + good + "]", "e.json");
  const std::vector<std::string> paths{file.path.string(), second.path.string()};
  CHECK(Dataset::open(paths)[3].where == second.path.string() + ":1: record 2 (index 1)");
}

TEST_CASE("dataset: empty and foreign files") {
  for (const char* empty : {"", "\n \n", "[]", "\xEF\xBB\xBF"}) {
    CAPTURE(empty);
    CHECK(OneFile(empty).error() == "d.jsonl: the file has no records");
  }
  CHECK(OneFile("", "d.txt").error() == "d.txt: the file has no records");
  CHECK(OneFile("id,text\n").error() ==
        "d.jsonl: neither JSON records nor Parquet, nor a file called .csv, .tsv or .txt; it begins with i");
  CHECK(OneFile("PK\x03\x04..", "d.xlsx").error().starts_with("d.xlsx: a zip archive, "));
  CHECK(OneFile("\xFD"
                "7zXZ",
                "d.jsonl.xz")
            .error()
            .starts_with("d.jsonl.xz: packed by xz; "));
  CHECK(OneFile("BZh9", "d.bz2").error().starts_with("d.bz2: packed by bzip2; "));
  CHECK(OneFile("<!DOCTYPE html>\n", "d.jsonl").error().starts_with("d.jsonl: a web page, "));
  const std::vector<std::string> missing{"/does/not/exist.json"};
  CHECK_THROWS_AS(Dataset::open(missing), IoError);
  const test::TempFolder folder;
  const std::vector<std::string> is_folder{folder.path().string()};
  CHECK_THROWS_AS(Dataset::open(is_folder), IoError);
  const std::vector<std::string> long_name{std::string(300, 'x')};
  CHECK_THROWS_AS(Dataset::open(long_name), IoError);
  CHECK_THROWS_AS(Dataset::open(std::vector<std::string>{}), ConfigError);
}

TEST_CASE("dataset: a file of UTF-16 says so, whatever it is called") {
  using namespace std::string_view_literals;
  const std::string_view bytes = "\xFF\xFE{\0\"\0t\0"sv, plain = "h\0i\0\n\0"sv;
  CHECK(OneFile(std::string(bytes)).error() ==
        "d.jsonl: the text is UTF-16; expected UTF-8: iconv -f UTF-16 -t UTF-8 OLD > NEW converts it");
  CHECK(OneFile(std::string(plain), "d.txt").error().starts_with("d.txt: the text is UTF-16LE; expected UTF-8"));
  // A text that begins with no character of ASCII: three of Chinese and a line end.
  CHECK(OneFile(std::string("\x2D\x4E\x87\x65\x84\x76\n\0"sv), "d.txt")
            .error()
            .starts_with("d.txt: the text is UTF-16LE"));
  CHECK(OneFile(std::string("\x4E\x2D\x65\x87\x76\x84\0\n"sv), "d.txt")
            .error()
            .starts_with("d.txt: the text is UTF-16BE"));
}

TEST_CASE("dataset: bytes that are no UTF-8 are an error with the line") {
  CHECK(OneFile("fine\nbad \xFFz\n", "d.txt").error() == "d.txt:2:5: invalid UTF-8");
  CHECK(OneFile("{\"text\":\"t\"}\n{\"text\":\"\xC3\"}").error().starts_with("d.jsonl:2:"));
}

TEST_CASE("dataset: the records of a large file, of which the last is read first") {
  std::string content = "[";
  const std::string record = R"({"instruction":"Say it.","input":")" + std::string(1000, 'x') + R"(","output":"it"})";
  for (int i = 0; i < 4000; ++i) content += (i > 0 ? ",\n" : "") + record;
  const OneFile file(content + "]", "d.json");
  const Dataset dataset = file.open();
  CHECK(dataset[3999].answer() == "it");
  CHECK(dataset[3999].where == file.path.string() + ":4000");
  CHECK(dataset.size() == 4000);
}

TEST_CASE("dataset: it knows its files, and how large a record may be, without reading it") {
  const OneFile a("{\"text\":\"1\"}\n\n{\"text\":\"22\"}\n"), b("[{\"text\":\"3\"}]", "b.json"), c("one\ntwo", "c.txt");
  std::vector<std::string> paths{a.path.string()};
  CHECK(Dataset::open(paths).name() == paths[0]);
  paths.push_back(b.path.string());
  CHECK(Dataset::open(paths).name() == paths[0] + " and 1 more");
  paths.push_back(c.path.string());
  const auto all = Dataset::open(paths);
  CHECK(all.name() == paths[0] + " and 2 more");
  CHECK(all.files() == 3);
  REQUIRE(all.size() == 5);
  const Index files[] = {0, 0, 1, 2, 2};
  const std::size_t bytes[] = {14, 14, 13, 4, 3};  // to the next record, or the end of the file
  for (Index record = 0; record < 5; ++record) {
    CAPTURE(record);
    CHECK(all.file_number(record) == files[record]);
    CHECK(all.bytes_of(record) == bytes[record]);
    CHECK(all[record].record == record);
  }
  CHECK(all[3].text == "one");
  CHECK(all[4].where == paths[2] + ":2");
}

TEST_CASE("dataset: a split takes the records that datasets takes of a file's") {
  const auto slice = [](std::string_view split, Index count = 13) {
    const auto found = data::slice_of(split, count);
    return found ? concat(found->first, " ", found->second) : "none";
  };
  // As datasets 5.2.0 has it, of 13 records.
  const std::pair<std::string_view, std::string_view> splits[] = {
      {"train", "0 13"},         {"all", "0 13"},           {"train[:3]", "0 3"},        {"train[2:5]", "2 5"},
      {"train[-3:]", "10 13"},   {"train[:10%]", "0 1"},    {"train[10%:50%]", "1 6"},   {"train[50%:]", "6 13"},
      {"train[5:100]", "5 13"},  {"train[:]", "0 13"},      {"train[5:2]", "5 5"},       {"train[-50:]", "0 13"},
      {"train[-10%:]", "12 13"}, {"train[1:50%]", "0 6"},   {"train[0%:12%]", "0 2"},    {"train[:-2]", "0 11"},
      {"train[:100%]", "0 13"},  {"train[-100%:]", "0 13"}, {"train[20:30]", "13 13"},   {"test", "none"},
      {"train[:200%]", "none"},  {"train[:-101%]", "none"}, {"train+train[:2]", "none"}, {"train[10]", "none"},
      {"train[]", "none"},       {"train[:1.5%]", "none"},  {"train[ 1:3]", "none"},     {"train[1:3", "none"},
      {"train[:2](x)", "none"},  {"train[%:]", "none"},     {"train[+1:]", "none"},      {"", "none"},
      {"train[0:1:2]", "none"},  {"Train", "none"},         {"validation[:2]", "none"},  {"train[1:x]", "none"}};
  for (const auto& one : splits) {
    CAPTURE(one.first);
    CHECK(slice(one.first) == one.second);
  }
  CHECK(slice("train[:50%]", 3) == "0 2");
  CHECK(slice("train[:50%]", 5) == "0 2");
  std::string lines;
  for (int i = 0; i < 13; ++i) lines += concat("{\"text\":\"", static_cast<char>('a' + i), "\"}\n");
  const OneFile file(lines), other("{\"text\":\"x\"}\n", "b.jsonl");
  std::vector<data::DataFile> files{data::DataFile(file.path.string()), data::DataFile(other.path.string()),
                                    data::DataFile(file.path.string())};
  const auto texts = [&](const DatasetOptions& options = {}) {
    const Dataset dataset = Dataset::open(files, options);
    std::string all;
    for (Index i = 0; i < dataset.size(); ++i) all += dataset[i].text;
    return all;
  };
  files[0].split = "train[2:5]";
  files[2].split = "train[-2:]";
  CHECK(texts() == "cdexlm");
  CHECK(Dataset::open(files)[1].where == file.path.string() + ":4");
  const log::Redirect quiet([](log::Level, std::string_view) {});
  files[0].num_samples = 6;  // of those
  CHECK(texts() == "cdecdexlm");
  files[0].max_samples = 2;
  CHECK(texts() == "cdxlm");
  CHECK(texts({.max_samples = 4}) == "cdxl");
  // The records that are taken, and no others, are what a run goes on with.
  files.resize(1);
  CHECK(Dataset::open(files).fingerprint() == OneFile("{\"text\":\"c\"}\n{\"text\":\"d\"}\n").open().fingerprint());
  files[0].split = "train[5:5]";
  CHECK(test::message_of<FormatError>([&] { (void)Dataset::open(files); }) ==
        file.path.string() + ": the split train[5:5] has none of its 13 records");
  files[0].split = "test";
  CHECK(test::message_of<ConfigError>([&] { (void)Dataset::open(files); }) ==
        file.path.string() +
            ": \"split\" is test, and the records of a file are of no split but train; expected "
            "train, or a slice of it, as train[:1000], train[-100:] or train[10%:20%]");
}

TEST_CASE("dataset: the files of a folder are one, in the order of their names") {
  const test::TempFolder temp;
  const io::Path folder = temp / "many";
  std::filesystem::create_directory(folder);
  const auto write = [&](const char* name, std::string_view text) { io::write_file(folder / name, text); };
  write("2.jsonl", "{\"text\":\"c\"}\n{\"text\":\"d\"}\n");
  write("10.json", "[{\"text\":\"a\"},\n{\"text\":\"b\"}]");
  write(".cache", "no records");
  const OneFile other("{\"text\":\"x\"}\n", "b.jsonl");
  std::vector<data::DataFile> files{data::DataFile(folder.native()), data::DataFile(other.path.string())};
  const auto texts = [&](const Dataset& dataset) {
    std::string all;
    for (Index i = 0; i < dataset.size(); ++i) all += dataset[i].text;
    return all;
  };
  const Dataset dataset = Dataset::open(files);
  CHECK(texts(dataset) == "abcdx");
  CHECK(dataset.files() == 2);
  CHECK(dataset.kinds() == std::vector{Sample::Kind::text, Sample::Kind::text});
  CHECK(dataset.file_number(3) == 0);
  CHECK(dataset.file_number(4) == 1);
  CHECK(dataset.name() == folder.native() + " and 1 more");
  CHECK(dataset[1].where == (folder / "10.json").native() + ":2");
  CHECK(dataset[2].where == (folder / "2.jsonl").native() + ":1");
  const std::vector<std::string> apart{(folder / "10.json").native(), (folder / "2.jsonl").native(),
                                       other.path.string()};
  CHECK(Dataset::open(apart).fingerprint() == dataset.fingerprint());
  files[0].num_samples = 3;  // of all of them
  CHECK(texts(Dataset::open(files)) == "abcx");
  files[0].num_samples = 8;
  log::Redirect quiet([](log::Level, std::string_view) {});
  CHECK(texts(Dataset::open(files)) == "abcdabcdx");
  files[0].max_samples = 1;
  CHECK(texts(Dataset::open(files)) == "ax");
  CHECK(texts(Dataset::open(files, {.max_samples = 1})) == "a");
  files.resize(1);
  files[0] = folder.native() + "/";
  const auto said = [&] {
    std::string text = test::message_of<Error>([&] { (void)Dataset::open(files); });
    for (auto at = text.find(folder.native()); at != text.npos; at = text.find(folder.native()))
      text.replace(at, folder.native().size(), "F");
    return text;
  };
  CHECK(texts(Dataset::open(files)) == "abcd");
  CHECK(data::names_of(files) == std::vector<std::string>{"many"});
  CHECK(data::last_part(files[0].path) == "many");
  CHECK(data::last_part("a/b.json") == "b.json");
  write("2.jsonl", "{\"prompt\":\"p\",\"completion\":\"c\"}");
  CHECK(said() ==
        "F/2.jsonl: begins with a conversation, but F/10.json with a text; the records of one folder must be "
        "of one kind");
  write("3.csv.gz", "text\n");
  CHECK(said() == "F/3.csv.gz lies beside F/10.json; expected files of one type in a folder of records");
  write("1.md", "# Notes");
  CHECK(said() ==
        "F/1.md: no file of records; expected in a folder of them only .json and .jsonl, .csv and .tsv, "
        ".parquet or .txt, also compressed");
  write("dataset_info.json", "{}");
  CHECK(said() ==
        "dataset F/ is a folder with a dataset_info.json; expected a name in that, with the folder as "
        "dataset_dir, or a file");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "inner.json");
  CHECK(test::holds(said(), "F/inner.json: no file of records; expected in a folder"));
}

TEST_CASE("dataset: what is no file of records says what would be one") {
  const test::TempFolder folder;
  const std::vector<std::string> is_folder{folder.path().string()};
  CHECK_THROWS_WITH_AS(Dataset::open(is_folder),
                       ("dataset " + is_folder[0] + " is a folder without files; expected some of records").c_str(),
                       IoError);
  CHECK_THROWS_WITH_AS(Dataset::open(std::vector<std::string>{}), "dataset names no file", ConfigError);
}

}  // namespace dataset_test
