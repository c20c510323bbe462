// Runs over records that no file holds.

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <vector>

#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace records_in_code_test {

using namespace lora;
using namespace lora::test;

namespace {

data::RecordList list_of(const io::Path& file) {
  data::RecordList list;
  const std::string text = io::read_file(file);
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const io::Json record = io::parse_json(text.substr(at, end - at), "record");
    list.add_tokens(record["input_ids"].get<std::vector<std::int32_t>>(),
                    record["labels"].get<std::vector<std::int32_t>>());
  }
  return list;
}

}  // namespace

TEST_CASE("records in code: a run over them has the bits of the run over a file, and can be resumed") {
  const Quiet quiet;
  const Workshop shop;
  fine_tune(shop.config());
  RunOptions options;
  options.records["mine"] = list_of(shop.temp / "train.jsonl");
  options.records["held back"] = list_of(shop.temp / "eval.jsonl");
  auto config = shop.config("code");
  config.dataset = {"mine"};
  config.eval_dataset = {"held back"};
  std::atomic<int> stop{0};
  auto first = options;
  first.stop = &stop;
  first.on_step = [&](const StepMetrics& step) { stop = step.step == 5; };
  CHECK(fine_tune(config, first).metrics.steps == 5);
  config.resume_from_checkpoint = "auto";
  fine_tune(config, options);
  const auto from_file = shop.temp / "run" / "final_model", from_code = shop.temp / "code" / "final_model";
  CHECK(adapter_values(from_code) == adapter_values(from_file));
  CHECK(numbers_of(shop.temp / "code") == numbers_of(shop.temp / "run"));
  CHECK(io::read_json(shop.temp / "code" / "run_config.json")["dataset"] == io::Json{"mine"});

  options.records["mine"].add_tokens(std::vector<std::int32_t>{1, 2});
  config.num_train_epochs = 5;
  CHECK_THROWS_WITH_AS(fine_tune(config, options), doctest::Contains("key dataset: given"), ConfigError);
}

TEST_CASE("records in code: a list's name is no path, whatever it looks like") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.overwrite_output_dir = true;
  config.dataset = {(shop.temp / "run" / "final_model" / "README.md").native()};
  RunOptions options;
  options.records[config.dataset.front().path] = list_of(shop.temp / "train.jsonl");
  fine_tune(config, options);
  CHECK_NOTHROW(fine_tune(config, options));  // of which the file of that name is one that the run replaces
}

TEST_CASE("records in code: a record that a file must not have is an error with the list's name and its place") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.dataset = {"mine"};
  RunOptions options;
  options.records["mine"].add_tokens(std::vector<std::int32_t>{1, 2, 3});
  options.records["mine"].add_tokens(std::vector<std::int32_t>{1, 2, 3}, std::vector<std::int32_t>{1, 2});
  CHECK_THROWS_WITH_AS(fine_tune(config, options), doctest::Contains("mine:2: 3 input_ids but 2 labels"), FormatError);
  options.records["mine"] = {};
  CHECK_THROWS_WITH_AS(fine_tune(config, options), doctest::Contains("mine: the file has no records"), FormatError);
  options.records.clear();
  CHECK_THROWS_WITH_AS(fine_tune(config, options), doctest::Contains("given mine, which is no file"), ConfigError);
  config.dataset = {"mine.jsonl"};
  CHECK_THROWS_AS(fine_tune(config, options), IoError);  // then it is a file's name
}

TEST_CASE("records in code: conversations, texts and tokens are what they are in a file") {
  data::RecordLists lists;
  lists["talk"].add(std::vector<data::Message>{{"user", "two\nlines"},
                                               {"assistant", "a \"word\"", "why", true},
                                               {"user", "on"},
                                               {"assistant", "no", {}, false}});
  lists["texts"].add_text("once upon\na time");
  lists["tokens"].add_tokens(std::vector<std::int32_t>{4, 5});
  const std::vector<std::string> names{"talk", "texts", "tokens"};
  const auto dataset = data::Dataset::open(names, {}, lists);
  REQUIRE(dataset.size() == 3);
  const auto talk = dataset[0];
  CHECK(talk.where == "talk:1");
  REQUIRE(talk.messages.size() == 4);
  CHECK(talk.messages[0].content == "two\nlines");
  CHECK(talk.messages[1].content == "a \"word\"");
  CHECK(talk.messages[1].reasoning == "why");
  CHECK(talk.messages[1].learned);
  CHECK_FALSE(talk.messages[3].learned);
  CHECK(dataset[1].text == "once upon\na time");
  CHECK(dataset[2].labels == std::vector<std::int32_t>{4, 5});
  CHECK(dataset.kinds() ==
        std::vector{data::Sample::Kind::messages, data::Sample::Kind::text, data::Sample::Kind::tokens});
}

}  // namespace records_in_code_test
