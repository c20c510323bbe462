#include "lora/inputs/records.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/cpu/runtime/device.hpp"
#include "lora/data/sampling/order.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/temp_folder.hpp"

namespace records_test {

using namespace lora;

namespace {

/// Token records of 1 to 40 tokens, of which every fifth has no label.
class Samples {
 public:
  Samples() {
    std::string text;
    Random random(11);
    for (Index i = 0; i < count; ++i) {
      std::vector<std::int32_t> ids, labels;
      const std::uint32_t length = 2 + random.below(39);
      for (std::uint32_t j = 0; j < length; ++j) ids.push_back(static_cast<std::int32_t>(random.below(50)));
      labels = ids;
      if (i % 5 == 0) labels.assign(ids.size(), ignore_index);
      text += io::to_text(io::Json{{"input_ids", ids}, {"labels", labels}}, -1) + "\n";
    }
    io::write_file(temp_ / "tokens.jsonl", std::string_view(text));
  }

  inputs::Records open(Index vocab_size = 0, Index cutoff_len = 2048) const {
    const std::vector<std::string> files = {(temp_ / "tokens.jsonl").native()};
    return {data::Dataset::open(files, {}),
            data::Encoder(nullptr, std::nullopt, {.cutoff_len = cutoff_len, .vocab_size = vocab_size})};
  }

  static constexpr Index count = 60;

 private:
  test::TempFolder temp_;
};

data::Order in_any_order() {
  std::vector<Index> all(static_cast<std::size_t>(Samples::count));
  std::iota(all.begin(), all.end(), Index{0});
  return data::Order(all, 7, true);
}

}  // namespace

TEST_CASE("records: however a step is split, each record keeps its place, and those without labels are left out") {
  const Samples samples;
  const inputs::Records records = samples.open();
  constexpr data::StepPlan::Range step{20, 44};
  for (const inputs::MicroBatchLimit limit :
       {inputs::MicroBatchLimit{1, 0}, {5, 0}, {100, 0}, {1, 1}, {1, 45}, {1, 100}, {1, 100'000}}) {
    CAPTURE(limit.sequences);
    CAPTURE(limit.tokens);
    data::Order order = in_any_order();
    auto batches = records.micro_batches(order.between(step.begin, step.end), limit);
    if (limit.sequences == 5) {  // in units, which micro-batches do not cross
      batches.clear();
      for (Index unit = 0; unit < 7; ++unit) {
        const auto own = data::StepPlan::unit_of(step, unit, 7);
        for (auto& batch : records.micro_batches(order.between(own.begin, own.end), limit, own.begin - step.begin))
          batches.push_back(std::move(batch));
      }
      CHECK(batches.size() == 7);
    }
    std::set<std::pair<Index, Index>> found, expected;
    for (const data::Batch& batch : batches) {
      CHECK(batch.sequences() > 0);
      if (limit.tokens > 0) CHECK((batch.rows() <= limit.tokens || batch.sequences() == 1));
      if (limit.tokens == 0) CHECK(batch.sequences() <= limit.sequences);
      for (std::size_t b = 0; b < batch.segments.size(); ++b) {
        const auto place = static_cast<Index>(batch.sequence_index[static_cast<std::size_t>(batch.segments[b].begin)]);
        CHECK(found.emplace(batch.records[b], place).second);
        const data::Example example = records[batch.records[b]];
        CHECK(batch.segments[b].size() == static_cast<Index>(example.tokens.size()));
      }
    }
    for (Index sample = step.begin; sample < step.end; ++sample)
      if (records[order[sample]].labeled() > 0) expected.emplace(order[sample], sample - step.begin);
    CHECK(found == expected);
    CHECK(expected.size() < static_cast<std::size_t>(step.end - step.begin));
  }
}

TEST_CASE("records: a micro-batch cuts sequences off where its limit says, and leaves out what keeps no label") {
  const Samples samples;
  const inputs::Records records = samples.open();
  data::Order order = in_any_order();
  const auto sequences = order.between(0, Samples::count);
  Index longest = 0, kept = 0;
  for (const data::Batch& batch : records.micro_batches(sequences, {.sequences = 3, .cutoff_len = 6}))
    for (std::size_t b = 0; b < batch.segments.size(); ++b) {
      longest = std::max(longest, batch.segments[b].size());
      ++kept;
    }
  Index expected = 0;
  for (const Index sequence : sequences) {
    data::Example example = records[sequence];
    const auto first = example.labels.begin();
    expected += std::any_of(first + 1, first + std::min<std::ptrdiff_t>(6, std::ssize(example.labels)),
                            [](std::int32_t label) { return label != ignore_index; });
  }
  CHECK(longest == 6);
  CHECK(kept == expected);
  CHECK(kept < Samples::count);
}

TEST_CASE("records: filling by tokens takes no more micro-batches than the order of the step would") {
  const Samples samples;
  const inputs::Records records = samples.open();
  data::Order order = in_any_order();
  for (const Index tokens : {40, 60, 80, 120}) {
    CAPTURE(tokens);
    std::size_t in_order = 0;
    Index filled = tokens + 1;
    for (Index sample = 0; sample < Samples::count; ++sample) {
      const data::Example example = records[order[sample]];
      if (example.labeled() == 0) continue;
      const auto length = static_cast<Index>(example.tokens.size());
      if (filled + length > tokens) {
        ++in_order;
        filled = 0;
      }
      filled += length;
    }
    const auto batches = records.micro_batches(order.between(0, Samples::count), {1, tokens});
    CHECK(batches.size() < in_order);
  }
}

TEST_CASE("records: a survey of many records encodes some and reads all") {
  const Samples samples;
  const inputs::Records records = samples.open();
  cpu::Device dev(2);
  std::vector<Index> all(Samples::count);
  std::iota(all.begin(), all.end(), Index{0});
  const auto tokens_of_every = [&](Index step) {
    Index sum = 0;
    for (Index i = 0; i < Samples::count; i += step) sum += static_cast<Index>(records[i].tokens.size());
    return sum;
  };

  const auto whole = records.survey(dev, all);
  CHECK(whole.complete());
  CHECK(whole.tokens() == tokens_of_every(1));
  CHECK(whole.left_out() == Samples::count / 5);

  const auto part = records.survey(dev, all, 20);
  CHECK_FALSE(part.complete());
  CHECK(part.records() == Samples::count);
  CHECK(part.tokens() == 3 * tokens_of_every(3));
  CHECK(part.length_at(1) == whole.length_at(1));  // found among those that were passed over, too

  SUBCASE("labels that no encoded record has are looked for in all") {
    CHECK(records.survey(dev, all, 12).tokens() == tokens_of_every(1));
  }
  SUBCASE("what is malformed shows, encoded or not") {
    std::int32_t largest = 0;
    std::string where;
    for (Index i = 0; i < Samples::count; ++i)
      for (const std::int32_t id : records[i].tokens)
        if (id > largest) largest = id, where = records.where(i);
    CHECK_THROWS_WITH_AS(samples.open(largest).survey(dev, all, 1), doctest::Contains(where.c_str()), FormatError);
  }
  SUBCASE("what is cut off is not looked at, encoded or not") {
    std::int32_t largest = 0;
    for (Index i = 0; i < Samples::count; ++i) largest = std::max(largest, records[i].tokens.front());
    for (const std::size_t most : {std::size_t{20}, all.size()})
      CHECK_NOTHROW(samples.open(largest + 1, 1).survey(dev, all, most));
    CHECK_THROWS_AS(samples.open(largest, 1).survey(dev, all, 20), FormatError);
  }
}

TEST_CASE("records: long texts are cut so that all of them is learned, and others stay as they are") {
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  io::write_file(folder / "tokenizer_config.json", std::string_view(R"({"eos_token":"<|im_end|>"})"));
  const auto tokenizer = tokenizer::Tokenizer::from_folder(folder.path());
  std::string words;
  for (int i = 0; i < 100; ++i) words += static_cast<char>('!' + i % 90);
  io::write_file(folder / "a.txt", std::string_view("line\n" + words + "\nlast line\n"));
  io::write_file(folder / "b.jsonl", std::string_view("{\"text\":\"" + std::string(50, 'x') + "\",\"weight\":0}\n"));
  const std::vector<std::string> files = {(folder / "a.txt").native(), (folder / "b.jsonl").native()};
  for (const bool cuts : {true, false}) {
    CAPTURE(cuts);
    inputs::Records records{data::Dataset::open(files), data::Encoder(&tokenizer, std::nullopt, {.cutoff_len = 11})};
    cpu::Device dev(2);
    if (cuts) records.cut_texts(dev);
    if (cuts) records.cut_texts(dev);  // which changes nothing more
    // 101 tokens with the last, of which each block but the first learns 10
    REQUIRE(records.size() == (cuts ? 1 + 10 + 1 + 1 : 4));
    const data::Sequences some = std::vector<Index>{0, 1}, all = data::Sequences::below(4);
    const auto sequences = records.sequences_of(all);
    CHECK(records.sequences_of(some).size() == (cuts ? 11 : 2));
    CHECK(sequences.size() == records.size());
    std::string learned;
    for (const Index i : records.sequences_of(some).numbers()) {
      const auto example = records[i];
      CHECK(example.tokens.size() <= 11);
      CHECK(example.record == (i == 0 ? 0 : 1));
      CHECK(example.truncated == (!cuts && i == 1));
      for (std::size_t at = 1; i > 0 && at < example.labels.size(); ++at)
        if (example.labels[at] >= 0) learned += tokenizer.decode(std::vector{example.labels[at]});
    }
    CHECK(learned == (cuts ? words.substr(1) + "<|im_end|>" : words.substr(1, 10)));
    CHECK(records[records.size() - 2].labeled() == 9);
    CHECK(records[records.size() - 1].labeled() == 0);
    const auto summary = records.survey(dev, sequences);
    CHECK(summary.truncated() == (cuts ? 1 : 2));
    CHECK(summary.text().starts_with(cuts ? "13 blocks of 4 records, " : "4 records, "));
    for (const std::size_t most : {std::size_t{1}, std::size_t{2}})
      CHECK(records.survey(dev, sequences, most).length_at(1) == 11);
  }
}

TEST_CASE("records: a text is cut by its tokens, of which it may have more than bytes") {
  const test::TempFolder folder;
  const auto tokenizer = tokenizer::Tokenizer::from_json(test::byte_tokenizer_json(), "test");
  // U+0958, which NFC makes two characters of three bytes each.
  std::string grows;
  for (int i = 0; i < 5; ++i) grows += "\xE0\xA5\x98";
  io::write_file(folder / "a.txt", std::string_view(grows + "\n"));
  const std::vector<std::string> files = {(folder / "a.txt").native()};
  const Index length = std::ssize(tokenizer.encode(grows).ids);
  REQUIRE(length == 30);
  for (const Index cutoff : {length - 1, length + 1}) {
    inputs::Records records{data::Dataset::open(files),
                            data::Encoder(&tokenizer, std::nullopt, {.cutoff_len = cutoff})};
    const cpu::Device dev(1);
    records.cut_texts(dev);
    CHECK(records.size() == (cutoff < length ? 2 : 1));
    for (Index i = 0; i < records.size(); ++i) CHECK_FALSE(records[i].truncated);
  }
}

TEST_CASE("records: a survey tells fields that are not used and counts empty answers, all of them and once") {
  const test::TempFolder folder;
  std::string text;
  for (int i = 0; i < 50; ++i)
    text += concat(R"({"prompt":"p","completion":")", i % 5 == 0 ? "" : "c", R"(","id":)", i, "}\n");
  io::write_file(folder / "d.jsonl", std::string_view(text));
  std::vector<std::string> warnings;
  const auto before = log::set_sink([&](log::Level, std::string_view words) { warnings.emplace_back(words); });
  const auto tokenizer = tokenizer::Tokenizer::from_json(test::byte_tokenizer_json(), "test");
  const std::vector<std::string> files = {(folder / "d.jsonl").native()};
  const inputs::Records records{data::Dataset::open(files, {.skip_empty_answers = true}),
                                data::Encoder(&tokenizer, data::ChatTemplate::named("chatml"), {})};
  std::vector<Index> all(50);
  std::iota(all.begin(), all.end(), Index{0});
  cpu::Device dev(2);
  for (const std::size_t most : {std::size_t{50}, std::size_t{7}}) {
    const auto summary = records.survey(dev, all, most);
    CHECK(summary.unanswered() == 10);
    CHECK(summary.records() == 50);
    CHECK(summary.left_out() == 0);
  }
  log::set_sink(before);
  const std::string counted = files[0] + ": 10 of 50 records have an empty answer and are left out";
  CHECK(warnings == std::vector<std::string>{files[0] + ": fields of records that are not used: id", counted, counted});
}

TEST_CASE("records: training teaches the template's end, the tokenizer's, or nothing new") {
  using Kind = data::Sample::Kind;
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  io::write_file(folder / "tokenizer_config.json", std::string_view(R"({"eos_token": "z"})"));
  inputs::TextFiles text;
  text.tokenizer = std::make_shared<tokenizer::Tokenizer>(tokenizer::Tokenizer::from_folder(folder.path()));
  const auto expect = [&](std::vector<Kind> kinds, const std::string& name, const std::string& chat,
                          const std::string& end) {
    const inputs::Taught taught = inputs::taught_by(kinds, text);
    CHECK(taught.template_name == name);
    CHECK(taught.files.chat_template == chat);
    CHECK(taught.files.eos_token == end);
  };
  expect({Kind::tokens}, "", "", "");
  expect({Kind::text, Kind::tokens}, "", "", "z");
  text.adapter = {"the adapter's", "<end>"};
  expect({Kind::tokens}, "", "the adapter's", "<end>");
  expect({Kind::text}, "", "the adapter's", "<end>");
  text.chat_template = data::ChatTemplate::named("chatml");
  expect({Kind::text}, "", "the adapter's", "<end>");  // no record is written by it
  expect({Kind::text, Kind::messages}, "chatml", text.chat_template->text(), "<|im_end|>");
  text.tokenizer.reset();
  text.chat_template.reset();
  text.adapter = {};
  expect({Kind::text}, "", "", "");
}

TEST_CASE("records: a micro-batch is limited by tokens unless sequences are asked for") {
  settings::Config config;
  config.cutoff_len = 77;
  const auto limit = [&] {
    const auto found = inputs::micro_batch_limit(config);
    return std::vector<Index>{found.sequences, found.tokens, found.cutoff_len};
  };
  CHECK(limit() == std::vector<Index>{1, 1024, 77});
  config.per_device_train_batch_size = 3;
  CHECK(limit() == std::vector<Index>{3, 0, 77});
  config.max_tokens_per_micro_batch = 50;
  CHECK(limit() == std::vector<Index>{3, 50, 77});
  config.per_device_train_batch_size.reset();
  CHECK(limit() == std::vector<Index>{1, 50, 77});
}

TEST_CASE("records: a micro-batch has room for what records usually have in common, unless its tokens are given") {
  settings::Config config;
  config.cutoff_len = 500;
  const auto tokens = [&](Index beginning) {
    return inputs::with_room_for(inputs::micro_batch_limit(config), beginning).tokens;
  };
  CHECK(tokens(0) == 1024);
  CHECK(tokens(300) == 1324);
  CHECK(tokens(900) == 1524);  // of which cutoff_len leaves so much
  const auto once = inputs::with_room_for(inputs::micro_batch_limit(config), 300);
  CHECK(inputs::with_room_for(once, 300).tokens == 1324);
  config.lora_dropout = 0.1;
  CHECK(tokens(300) == 1024);
  config.lora_dropout = 0;
  config.max_tokens_per_micro_batch = 1024;
  CHECK(tokens(300) == 1024);
  config.max_tokens_per_micro_batch.reset();
  config.per_device_train_batch_size = 2;
  CHECK(tokens(300) == 0);
  config.per_device_train_batch_size.reset();
  config.memory_limit_gib = 3;
  CHECK(tokens(300) == 1024);
}

TEST_CASE("records: of unused fields twenty are told") {
  for (const int count : {20, 21}) {
    io::Json record = io::json_object({{"input_ids", io::Json::array({1})}, {"labels", io::Json::array({1})}});
    std::string told;
    for (int i = 0; i < count; ++i) {
      const std::string field = concat("f", i < 10 ? "0" : "", i);
      record[field] = i;
      if (i < 20) told += (i > 0 ? ", " : "") + field;
    }
    data::RecordLists lists;
    lists["mine"].add(record);
    const auto dataset = data::Dataset::open(std::vector<std::string>{"mine"}, {}, lists);
    const test::Quiet quiet;
    inputs::warn_of_unused_fields(dataset);
    CHECK(quiet.text.empty());  // nothing was read
    static_cast<void>(dataset[0]);
    inputs::warn_of_unused_fields(dataset);
    inputs::warn_of_unused_fields(dataset);
    CHECK(quiet.text == "mine: fields of records that are not used: " + told + (count > 20 ? ", ...\n" : "\n"));
  }
}

TEST_CASE("records: a column that no record has is told once") {
  data::RecordLists lists;
  lists["mine"].add(io::json_object({{"q", "Q"}, {"a", "A"}}));
  data::DataFile file("mine");
  file.columns = {.columns = {{"prompt", "q"}, {"query", "x"}, {"response", "a"}}};
  const auto dataset = data::Dataset::open(std::vector<data::DataFile>{file}, {}, lists);
  const test::Quiet quiet;
  static_cast<void>(dataset[0]);
  inputs::warn_of_unused_fields(dataset);
  inputs::warn_of_unused_fields(dataset);
  CHECK(quiet.text == "mine: no record that was read has \"x\", which columns of the file name as query\n");
}

TEST_CASE("records: keys of the command line that have no effect on records of these kinds are refused") {
  using Kind = data::Sample::Kind;
  struct Example {
    std::string_view key;
    Kind kind;  // on which it has one
    std::string_view allowed;
  };
  const Example examples[] = {{"train_on_prompt", Kind::messages, "conversations"},
                              {"train_on_last_turn_only", Kind::messages, "conversations"},
                              {"template", Kind::messages, "conversations, which it writes"},
                              {"add_generation_prompt", Kind::messages, "conversations"},
                              {"text_column", Kind::text, "plain texts"}};
  for (const Example& example : examples) {
    CAPTURE(std::string(example.key));
    for (const Kind kind : {Kind::messages, Kind::text, Kind::tokens}) {
      settings::Config config;
      const std::vector<Kind> kinds = {Kind::tokens, kind};
      const auto said = [&] { return test::message_of<ConfigError>([&] { inputs::refuse_idle_keys(config, kinds); }); };
      CHECK(said() == "nothing was thrown");
      config.from_command_line = {example.key};
      CHECK(said() ==
            (kind == example.kind
                 ? "nothing was thrown"
                 : concat("key ", example.key, ": given, which has no effect here; allowed: with ", example.allowed)));
    }
  }
}

TEST_CASE("records: files of text are opened for what needs them, and template keys without one are refused") {
  using Kind = data::Sample::Kind;
  const test::TempFolder bare, model;
  io::write_file(model / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  settings::Config config;
  const std::vector<Kind> tokens = {Kind::tokens}, text = {Kind::text}, talk = {Kind::tokens, Kind::messages};
  CHECK_FALSE(inputs::text_files(config, bare.path(), tokens).tokenizer);
  for (const auto& kinds : {text, talk})
    CHECK(test::message_of<IoError>([&] { inputs::text_files(config, bare.path(), kinds); }) ==
          bare.path().native() + ": no tokenizer.json and no tokenizer.model");
  CHECK(inputs::text_files(config, model.path(), tokens).tokenizer);
  CHECK_FALSE(inputs::text_files(config, model.path(), text).chat_template);
  CHECK_THROWS_AS(inputs::text_files(config, model.path(), talk), ConfigError);  // it has no template of its own
  config.template_name = "chatml";
  CHECK(inputs::text_files(config, model.path(), talk).chat_template->name() == "chatml");
  CHECK(inputs::text_files(config, model.path(), text).chat_template->name() == "chatml");
  CHECK_FALSE(inputs::text_files(config, bare.path(), tokens).chat_template);
  config.template_name = "auto";
  config.date = "2024-07-26";
  CHECK(test::message_of<ConfigError>([&] { inputs::text_files(config, model.path(), text); }) ==
        "key date: given 2024-07-26, but no record is a conversation, to be written by a template");
}

TEST_CASE("records: settings reach the data set and the encoder, of training and of evaluation") {
  settings::Config config;
  config.text_column = "body";
  config.skip_empty_answers = true;
  config.cutoff_len = 6;
  config.stages = {{.until_step = 1, .cutoff_len = 9}, {}};
  config.train_on_prompt = true;
  config.enable_thinking = false;
  config.date = "2024-01-02";
  data::RecordLists lists;
  lists["mine"].add(io::Json{{"body", "b"}, {"level", 3}});
  lists["mine"].add(io::Json{{"body", ""}});
  const std::vector<data::DataFile> files = {"mine"};
  CHECK(inputs::class_field(config) == "");
  config.stages[1].use_curriculum = true;
  config.curriculum_field = "level";
  CHECK(inputs::class_field(config) == "level");
  const auto dataset = inputs::open_dataset(config, files, std::nullopt, lists, "level");
  CHECK(dataset.size() == 2);
  CHECK(dataset[0].text == "b");
  CHECK(dataset[0].label == "3");
  CHECK(dataset[1].unanswered);
  CHECK(inputs::open_dataset(config, files, 1, lists).size() == 1);
  CHECK_FALSE(inputs::open_dataset(config, files, 1, lists)[0].label);
  for (const bool training : {true, false}) {
    const auto records = inputs::encoded_records(config, dataset, {}, 77, training);
    const data::EncodeOptions& options = records.encoder().options();
    CHECK(options.cutoff_len == (training ? 9 : std::numeric_limits<Index>::max()));
    CHECK(options.train_on_prompt);
    CHECK_FALSE(options.train_on_last_turn_only);
    CHECK_FALSE(options.render.enable_thinking);
    CHECK(options.render.date == "2024-01-02");
    CHECK(options.vocab_size == 77);
    CHECK(records.where(1) == "mine:2");
  }
  config.train_on_prompt = false;
  config.train_on_last_turn_only = true;
  const auto last = inputs::encoded_records(config, dataset, {}, 0, true);
  CHECK_FALSE(last.encoder().options().train_on_prompt);
  CHECK(last.encoder().options().train_on_last_turn_only);
}

TEST_CASE("records: classes are found in all of many records, and those without a label have none") {
  data::RecordLists lists;
  const char* const levels[] = {"c", "a", "b"};
  constexpr Index count = 4100;  // more than are read at once
  for (Index i = 0; i < count; ++i) {
    io::Json record = io::json_object({{"input_ids", io::Json::array({1})}, {"labels", io::Json::array({1})}});
    if (i % 4 != 3) record["level"] = levels[i % 4];
    lists["mine"].add(record);
  }
  const std::vector<std::string> names = {"mine"};
  const inputs::Records records{data::Dataset::open(names, {.label_field = "level"}, lists),
                                data::Encoder(nullptr, std::nullopt, {})};
  const cpu::Threads threads(1);
  const auto found = records.classes(threads, data::Sequences::below(count));
  CHECK(found.labels == std::vector<std::string>{"a", "b", "c"});
  REQUIRE(std::ssize(found.of) == count);
  const std::int32_t expected[] = {2, 0, 1, -1};
  Index wrong = 0;
  for (Index i = 0; i < count; ++i) wrong += found.of[static_cast<std::size_t>(i)] != expected[i % 4];
  CHECK(wrong == 0);
  const auto some = records.classes(threads, std::vector<Index>{4099, 1, 0});
  CHECK(some.labels == std::vector<std::string>{"a", "c"});
  CHECK(some.of == std::vector<std::int32_t>{-1, 0, 1});
}

TEST_CASE(
    "records: without a limit of tokens a micro-batch has so many neighboring places, counted from the unit's first") {
  const Samples samples;
  const inputs::Records records = samples.open();
  std::vector<Index> all(24);
  std::iota(all.begin(), all.end(), Index{20});  // of which every fifth record has no label
  std::vector<std::vector<Index>> batches;
  for (const data::Batch& batch : records.micro_batches(all, {.sequences = 5}, 3)) batches.push_back(batch.records);
  CHECK(batches == std::vector<std::vector<Index>>{
                       {21, 22, 23, 24}, {26, 27, 28, 29}, {31, 32, 33, 34}, {36, 37, 38, 39}, {41, 42, 43}});
  CHECK(records.micro_batches(all, {.sequences = 100}).size() == 1);
  CHECK(records.micro_batches(all, {.sequences = 1}).size() == 19);
}

TEST_CASE("records: a malformed record is told by whoever reads all, of two the first") {
  data::RecordLists lists;
  for (int i = 0; i < 20; ++i) {
    io::Json record = io::json_object({{"input_ids", io::Json::array({1, 2})}, {"labels", io::Json::array({1, 2})}});
    if (i == 7 || i == 12) record["labels"] = io::Json::array({1});
    lists["mine"].add(record);
  }
  const std::vector<std::string> names = {"mine"};
  const inputs::Records records{data::Dataset::open(names, {}, lists), data::Encoder(nullptr, std::nullopt, {})};
  const cpu::Threads threads(2);
  const data::Sequences all = data::Sequences::below(20);
  const std::string told = "mine:8: 2 input_ids but 1 labels";
  CHECK(test::message_of<FormatError>([&] { records.classes(threads, all); }) == told);
  for (const std::size_t most : {std::size_t{20}, std::size_t{3}})
    CHECK(test::message_of<FormatError>([&] { records.survey(threads, all, most); }) == told);
}

TEST_CASE("records: blocks that a survey passes over are counted, and their lengths known") {
  const auto tokenizer = tokenizer::Tokenizer::from_json(test::byte_tokenizer_json(), "test");
  data::RecordLists lists;
  lists["mine"].add_text("short");
  lists["mine"].add_text(std::string(30, 'x'));
  const std::vector<std::string> names = {"mine"};
  const cpu::Threads threads(1);
  inputs::Records records{data::Dataset::open(names, {}, lists),
                          data::Encoder(&tokenizer, std::nullopt, {.cutoff_len = 11})};
  records.cut_texts(threads);
  REQUIRE(records.size() == 4);
  const auto part = records.survey(threads, data::Sequences::below(4), 1);
  CHECK(part.records() == 4);
  CHECK_FALSE(part.complete());
  CHECK(part.tokens() == 4 * 5);
  CHECK(part.length_at(0.5) == 5);
  CHECK(part.length_at(1) == 11);
  CHECK(part.text().starts_with("4 blocks of 2 records, judged by 1 of them: about 20 tokens, "));
}

TEST_CASE("records: a long text that is malformed, or is not learned, is not cut") {
  const auto tokenizer = tokenizer::Tokenizer::from_json(test::byte_tokenizer_json(), "test");
  const std::string longer(30, 'x');
  data::RecordLists lists;
  lists["mine"].add(io::Json{{"text", longer}, {"loss", 0}});
  lists["mine"].add(io::Json{{"text", longer}});
  const std::vector<std::string> names = {"mine"};
  const cpu::Threads threads(1);
  inputs::Records records{data::Dataset::open(names, {}, lists),
                          data::Encoder(&tokenizer, std::nullopt, {.cutoff_len = 10})};
  records.cut_texts(threads);
  CHECK(records.size() == 5);  // 29 tokens behind the first, 9 a block
  CHECK(records[0].labeled() == 0);
  CHECK(records[0].truncated);
  CHECK(records.record_of(1) == 1);
  CHECK(records.has_blocks());
  lists["mine"].add(io::Json{{"text", longer}, {"loss", 0.5}});
  inputs::Records broken{data::Dataset::open(names, {}, lists),
                         data::Encoder(&tokenizer, std::nullopt, {.cutoff_len = 10})};
  CHECK(test::message_of<FormatError>([&] { broken.cut_texts(threads); }) ==
        "mine:3: \"loss\" is 0.5; expected true, false, 0 or 1");
}

TEST_CASE("records: long texts of more bytes than are taken at once are cut once each, and stand behind one another") {
  const auto tokenizer = tokenizer::Tokenizer::from_json(test::byte_tokenizer_json(), "test");
  const std::string large(std::size_t{8} << 20, 'x');
  data::RecordLists lists;
  lists["mine"].add_text(std::string(30, 'a'));
  lists["mine"].add(io::Json{{"text", large}, {"loss", 0}});  // of which no token is needed
  lists["mine"].add_text(std::string(21, 'b'));
  lists["mine"].add_text("short");
  const std::vector<std::string> names = {"mine"};
  const cpu::Threads threads(1);
  inputs::Records records{data::Dataset::open(names, {}, lists),
                          data::Encoder(&tokenizer, std::nullopt, {.cutoff_len = 11})};
  records.cut_texts(threads);
  REQUIRE(records.size() == 3 + 1 + 2 + 1);  // 29 tokens behind the first and 20, 10 a block
  std::vector<Index> of;
  for (Index i = 0; i < records.size(); ++i) of.push_back(records.record_of(i));
  CHECK(of == std::vector<Index>{0, 0, 0, 1, 2, 2, 3});
  CHECK(records[0].tokens == std::vector<std::int32_t>(11, 'a'));
  CHECK(records[5].tokens == std::vector<std::int32_t>(11, 'b'));
}

TEST_CASE("records: a survey goes through more records than are read at once, and finds the longest and the broken") {
  constexpr Index count = 1030, longest = 1027;
  data::RecordLists lists;
  for (Index i = 0; i < count; ++i) {
    const std::vector<std::int32_t> ids(i == longest ? 9 : i == 3 ? 8 : i % 2 == 0 ? 2 : 3, 5);
    lists["mine"].add_tokens(ids);
  }
  const std::vector<std::string> names = {"mine"};
  const cpu::Threads threads(1);
  const data::Sequences all = data::Sequences::below(count);
  const inputs::Records records{data::Dataset::open(names, {}, lists), data::Encoder(nullptr, std::nullopt, {})};
  const auto whole = records.survey(threads, all);
  CHECK(whole.records() == count);
  CHECK(whole.tokens() == 515 * 2 + 515 * 3 + 5 + 6);
  CHECK(whole.labeled() == whole.tokens() - count);
  CHECK(whole.length_at(1) == 9);
  CHECK(whole.longest_record() == longest);
  const auto part = records.survey(threads, all, 10);  // each 103rd
  CHECK(part.records() == count);
  CHECK_FALSE(part.complete());
  CHECK(part.length_at(0.999) == 3);
  CHECK(part.length_at(1) == 9);
  CHECK(part.longest_record() == longest);
  model::Config shape;
  shape.rope.scaling = nn::RopeConfig::Scaling::longrope;
  shape.rope.original_max_position_embeddings = 8;
  shape.rope.short_factors = {1};
  shape.rope.long_factors = {2};
  const auto refused = [&](Index cutoff_len) {
    return test::message_of<ConfigError>([&] { inputs::expect_supported_records(shape, records, part, cutoff_len); });
  };
  CHECK(refused(8) == "nothing was thrown");
  CHECK(refused(20).starts_with("mine:1028: a sequence of 9 tokens, but beyond 8 "));
  const auto some = records.survey(threads, std::vector<Index>{longest, 4}, 1);
  CHECK(some.records() == 2);
  CHECK(some.tokens() == 18);  // twice the first
  const Index last = count;
  lists["mine"].add(io::Json{{"input_ids", {1, 2}}, {"labels", {1}}});
  const inputs::Records broken{data::Dataset::open(names, {}, lists), data::Encoder(nullptr, std::nullopt, {})};
  CHECK(test::message_of<FormatError>([&] { broken.survey(threads, data::Sequences::below(last + 1), 10); }) ==
        "mine:1031: 2 input_ids but 1 labels");
}

TEST_CASE("records: the blocks of a text have the class of its record, behind many others too") {
  const auto tokenizer = tokenizer::Tokenizer::from_json(test::byte_tokenizer_json(), "test");
  constexpr Index before = 4097;  // more than are read at once
  data::RecordLists lists;
  for (Index i = 0; i < before; ++i) lists["tokens"].add_tokens(std::vector<std::int32_t>{1});
  lists["mine"].add(io::Json{{"text", std::string(30, 'x')}, {"level", "b"}});
  lists["mine"].add(io::Json{{"text", "y"}});
  lists["mine"].add(io::Json{{"text", std::string(12, 'z')}, {"level", "a"}});
  const std::vector<std::string> names = {"tokens", "mine"};
  const cpu::Threads threads(1);
  inputs::Records records{data::Dataset::open(names, {.label_field = "level"}, lists),
                          data::Encoder(&tokenizer, std::nullopt, {.cutoff_len = 11})};
  CHECK_FALSE(records.has_blocks());
  records.cut_texts(threads);
  REQUIRE(records.size() == before + 3 + 1 + 2);
  const auto found = records.classes(threads, data::Sequences::below(records.size()));
  CHECK(found.labels == std::vector<std::string>{"a", "b"});
  REQUIRE(std::ssize(found.of) == records.size());
  CHECK(std::count(found.of.begin(), found.of.begin() + before, -1) == before);
  CHECK(std::vector<std::int32_t>(found.of.begin() + before, found.of.end()) ==
        std::vector<std::int32_t>{1, 1, 1, -1, 0, 0});
  const auto some = records.classes(threads, std::vector<Index>{before + 4, before + 1, before});
  CHECK(some.of == std::vector<std::int32_t>{0, 1, 1});
}

}  // namespace records_test
