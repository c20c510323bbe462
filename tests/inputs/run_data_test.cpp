#include "lora/inputs/run_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/files/file.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/temp_folder.hpp"

namespace run_data_test {

using namespace lora;
using inputs::RunData;
using test::message_of;

namespace {

/// A run's data from lists of records, with a model folder that has no tokenizer unless one is written.
struct Shelf {
  test::TempFolder model{};
  cpu::Threads threads{1};
  data::RecordLists lists{};
  settings::Config config{};
  io::Json earlier = io::Json::object();  ///< settings of the run that is resumed

  Shelf() { config.dataset = {"mine"}; }

  /// Records of three tokens, the last of which is learned.
  void add_tokens(const std::string& list, int count, std::int32_t label = 3) {
    for (int i = 0; i < count; ++i)
      lists[list].add(io::Json{{"input_ids", {1, 2, 3}}, {"labels", {-100, -100, label}}});
  }
  void write_tokenizer() {
    io::write_file(model / "tokenizer.json", std::string_view(test::byte_tokenizer_json(test::llama_marks)));
  }
  RunData open() const {
    return {threads,
            config,
            model.path(),
            0,
            [this](std::string_view key) {
              const io::Json* value = io::json_find(earlier, key);
              return value == nullptr ? io::Json() : *value;
            },
            lists};
  }
  template <class E>
  std::string told() const {
    return message_of<E>([&] { open(); });
  }
  std::string surveyed() const {
    return message_of<Error>([&] { open().survey(threads, config); });
  }
};

}  // namespace

TEST_CASE("run data: records to evaluate are a file's or held back, of either as many as are asked for") {
  Shelf shelf;
  shelf.add_tokens("mine", 20);
  shelf.add_tokens("other", 4);
  settings::Config& config = shelf.config;
  CHECK_FALSE(shelf.open().evaluates());
  CHECK(shelf.open().order().numbers() == data::Sequences::below(20).numbers());
  config.max_samples = 7;
  CHECK(shelf.open().order().size() == 7);
  config.max_samples.reset();
  config.val_size = 5;
  const auto split = data::split_records(20, 5, 42);
  for (const Index most : {0, 3, 9}) {
    if (most > 0) config.max_eval_samples = most;
    const RunData data = shelf.open();
    CHECK(data.evaluates());
    CHECK(data.order().numbers() == split.train.numbers());
    auto held = split.held_back.numbers();
    if (most == 3) held.resize(3);
    CHECK(data.eval_order().numbers() == held);
    CHECK(data.eval().size() == 20);
  }
  config.seed = 43;
  CHECK(shelf.open().order().numbers() == data::split_records(20, 5, 43).train.numbers());
  config.val_size = 0;
  config.eval_dataset = {"other"};
  for (const Index most : {2, 9}) {
    config.max_eval_samples = most;
    const RunData data = shelf.open();
    CHECK(data.order().size() == 20);
    CHECK(data.eval_order().size() == (most == 2 ? 2 : 4));
    CHECK(data.eval().dataset().name() == "other");
  }
}

TEST_CASE("run data: of records that come more than once those that are held back are not learned from") {
  const test::Quiet quiet;
  Shelf shelf;
  settings::Config& config = shelf.config;
  for (int i = 0; i < 10; ++i)
    shelf.lists["mine"].add(io::Json{{"input_ids", {1, 2, 3 + i}}, {"labels", {-100, -100, 3 + i}}});
  shelf.add_tokens("other", 4);
  config.dataset = {"other", "mine"};
  config.dataset[1].num_samples = 35;
  CHECK(shelf.open().order().size() == 39);
  config.val_size = 0.25;  // of 14 records
  const RunData data = shelf.open();
  const auto held = data.eval_order().numbers();
  REQUIRE(held.size() == 4);
  const auto& dataset = data.train().dataset();
  std::map<std::string, int> times;
  for (const Index record : held) {
    CHECK(dataset.first_of(record) == record);
    times[dataset[record].where] = -100;
  }
  for (Index i = 0; i < data.order().size(); ++i) ++times[dataset[data.order()[i]].where];
  CHECK(times.size() == 14);
  int learned = 0;
  for (const auto& [where, count] : times) {
    CHECK((count == -100 || count == (where.starts_with("other") ? 1 : 3) || count == 4));
    learned += std::max(count, 0);
  }
  CHECK(learned == data.order().size());
  CHECK(std::is_sorted(held.begin(), held.end()));
  CHECK(shelf.open().order().numbers() == data.order().numbers());
  config.seed = 43;
  CHECK(shelf.open().order().numbers() != data.order().numbers());
  config.val_size = 14;
  CHECK(shelf.told<ConfigError>() == "val_size is 14 but there are only 14 records");
}

TEST_CASE("run data: records are of the kind that a file of settings calls them") {
  Shelf shelf;
  settings::Config& config = shelf.config;
  config.stage_place = "r.yaml:2: ";
  shelf.write_tokenizer();
  shelf.lists["mine"].add(io::Json{{"text", "t"}});
  shelf.lists["other"].add(io::Json{{"instruction", "q"}, {"output", "a"}});
  shelf.add_tokens("ids", 1);
  config.template_name = "llama3";
  config.stage = "sft";
  CHECK(shelf.told<ConfigError>() ==
        "r.yaml:2: key stage: given sft, but mine begins with a text; allowed: pt with plain texts, sft with "
        "conversations, or none");
  config.dataset = {"ids", "other"};
  CHECK_NOTHROW(shelf.open());
  config.stage = "pt";
  CHECK(test::holds(shelf.told<ConfigError>(), "key stage: given pt, but other begins with a conversation; allowed: "));
  config.dataset = {"mine", "ids"};
  CHECK_NOTHROW(shelf.open());
  config.eval_dataset = {"other"};
  CHECK(test::holds(shelf.told<ConfigError>(), "key stage: given pt, but other begins with a conversation; allowed: "));
}

TEST_CASE("run data: of what nothing can be learned or evaluated the cause is told") {
  const test::Quiet quiet;
  const std::string nothing = "mine: there is nothing to learn: ";
  Shelf shelf;
  shelf.add_tokens("mine", 2, -100);
  CHECK(shelf.surveyed() ==
        nothing +
            "no record has a labeled token: they, or their answers, are marked as not learned, such as by "
            "\"weight\" 0, or their labels are all -100");
  shelf.add_tokens("more", 1, -100);
  shelf.config.dataset = {"mine", "more"};
  CHECK(shelf.surveyed().starts_with(nothing));  // the first file stands for all
  shelf.config.dataset = {"mine"};
  shelf.add_tokens("mine", 1);
  CHECK(shelf.surveyed() == "nothing was thrown");
  const auto alone = shelf.open().survey(shelf.threads, shelf.config);
  CHECK((alone.train.records() == 3 && alone.train.tokens() == 9 && alone.eval.records() == 0));
  shelf.config.cutoff_len = 2;
  CHECK(shelf.surveyed() == nothing + "not one token is labeled within cutoff_len 2");
  shelf.config.stages = {{.until_step = 1, .cutoff_len = 1}, {}};
  CHECK(shelf.surveyed() == nothing + "not one token is labeled within cutoff_len 2");
  shelf.config.stages.clear();
  shelf.config.cutoff_len = 3;
  shelf.add_tokens("other", 2, -100);
  shelf.config.eval_dataset = {"other"};
  CHECK(shelf.surveyed() == "nothing to evaluate: not one token of the evaluation records is labeled");
  shelf.add_tokens("other", 1);
  CHECK(shelf.surveyed() == "nothing was thrown");
  const auto found = shelf.open().survey(shelf.threads, shelf.config);
  CHECK((found.train.records() == 3 && found.train.labeled() == 1));
  CHECK((found.eval.records() == 3 && found.eval.labeled() == 1));
  shelf.config.eval_predict = true;
  CHECK(shelf.surveyed() == "key eval_predict: given true, allowed: false where the model has no tokenizer files");
  shelf.write_tokenizer();
  CHECK(shelf.surveyed() == "other: eval_predict needs records with an answer; there is none");
  Shelf empty;
  empty.write_tokenizer();
  empty.lists["mine"].add_text("");
  empty.config.skip_empty_answers = true;
  CHECK(empty.surveyed() == nothing + "every record is left out since its answer is empty");
}

TEST_CASE("run data: with a curriculum each record has its class, and a field that none has is told") {
  test::Quiet quiet;
  Shelf shelf;
  for (const char* level : {"b", "a", "b", "c"})
    shelf.lists["mine"].add(io::Json{{"input_ids", {1, 2}}, {"labels", {1, 2}}, {"difficulty", level}});
  shelf.add_tokens("mine", 1);
  CHECK(shelf.open().classes() == nullptr);
  shelf.config.use_curriculum = true;
  const RunData data = shelf.open();
  REQUIRE(data.classes() != nullptr);
  CHECK(data.classes()->labels == std::vector<std::string>{"a", "b", "c"});
  CHECK(data.classes()->of == std::vector<std::int32_t>{1, 0, 1, 2, -1});
  CHECK(data.label_of(0) == "b");
  CHECK(data.label_of(1) == "a");
  CHECK(data.label_of(3) == "c");
  CHECK(data.absent_class_field().empty());
  shelf.config.val_size = 2;  // of those that stay, some lie behind one that is held back
  bool apart = false;
  for (Index seed = 1; seed < 20; ++seed) {
    shelf.config.seed = seed;
    const RunData some = shelf.open();
    REQUIRE(some.order().size() == 3);
    for (Index i = 0; i < 3; ++i) {
      const Index record = some.order()[i];
      apart = apart || record != i;
      const std::int32_t of = some.classes()->of[static_cast<std::size_t>(i)];
      if (record < 4)
        CHECK(some.label_of(record) == std::vector<std::string>{"b", "a", "b", "c"}[static_cast<std::size_t>(record)]);
      if (record < 4) CHECK(some.classes()->labels[static_cast<std::size_t>(of)] == some.label_of(record));
      CHECK((of == -1) == (record == 4));
    }
  }
  CHECK(apart);
  shelf.config.val_size = 0;
  quiet.text.clear();
  shelf.lists.clear();
  shelf.add_tokens("mine", 2);
  CHECK(shelf.open().classes() == nullptr);
  CHECK(shelf.open().absent_class_field() == "difficulty");
  CHECK(quiet.text ==
        "'difficulty' field not found in any record of mine: the run goes on without a curriculum\n"
        "'difficulty' field not found in any record of mine: the run goes on without a curriculum\n");
  const auto refused = [&](std::string_view key, const std::string& given, const std::string& field = "difficulty") {
    return concat("key ", key, ": given ", given, ", but no record of mine has the field \"", field,
                  "\", so that there is no curriculum; allowed: a curriculum_field that records have");
  };
  const settings::Config plain = shelf.config;
  shelf.config.curriculum_seed = 7;
  CHECK(shelf.told<ConfigError>() == refused("curriculum_seed", "7"));
  shelf.config = plain;
  shelf.config.curriculum_field = "level";
  CHECK(shelf.told<ConfigError>() == refused("curriculum_field", "\"level\"", "level"));
  shelf.config = plain;
  shelf.config.curriculum_stages = {{1, {{"a", 1}}}};
  CHECK(shelf.told<ConfigError>() == refused("curriculum_stages", R"([{"until":1.0,"mix":{"a":1.0}}])"));
  shelf.config = plain;
  shelf.config.from_command_line = {"curriculum_seed"};  // its default, but said
  CHECK(shelf.told<ConfigError>() == refused("curriculum_seed", "42"));
  shelf.config = plain;
  shelf.config.stages = {{.until_step = 1, .use_curriculum = false, .curriculum_stages = {{{1, {{"a", 1}}}}}}, {}};
  CHECK(shelf.told<ConfigError>() == "nothing was thrown");
  shelf.config.stages[1].curriculum_stages = {{1, {{"b", 1}}}};
  CHECK(shelf.told<ConfigError>() == refused("curriculum_stages", R"([{"until":1.0,"mix":{"b":1.0}}])"));
  shelf.config.stages[1].curriculum_stages = settings::Config{}.curriculum_stages;  // the default, but said
  CHECK(test::holds(shelf.told<ConfigError>(), R"(key curriculum_stages: given [{"until":0.3,)"));
}

TEST_CASE("run data: a mix has the sequences of each file, and what it can't have is told by the key that gives it") {
  Shelf shelf;
  shelf.add_tokens("mine", 4);
  shelf.add_tokens("other", 6);
  settings::Config& config = shelf.config;
  config.dataset = {"mine", "other"};
  CHECK(shelf.open().mixture().files.empty());
  for (const char* way : {"interleave_under", "interleave_over"}) {
    config.mix_strategy = way;
    const RunData data = shelf.open();
    const data::Mixture& mix = data.mixture();
    REQUIRE(mix.files.size() == 2);
    CHECK((mix.files[0].label == "file 0" && mix.files[1].label == "file 1"));
    CHECK(mix.files[0].sequences == std::vector<std::uint32_t>{0, 1, 2, 3});
    CHECK(mix.files[1].sequences == std::vector<std::uint32_t>{4, 5, 6, 7, 8, 9});
    const Index each = config.mix_strategy == "interleave_over" ? 6 : 4;
    CHECK(mix.counts == std::vector<Index>{each, each});
  }
  config.mix_strategy = "interleave_under";
  config.dataset[0].weight = 1;
  config.dataset[1].weight = 2;
  CHECK(shelf.open().mixture().counts == std::vector<Index>{3, 6});
  config.dataset[1].weight = 99;
  CHECK(shelf.told<ConfigError>() ==
        "key dataset: its weights give a mix in which an epoch has 6 samples and none of file 1, whose share is 0.01");
  config.dataset[0].weight.reset();
  config.dataset[1].weight.reset();
  config.interleave_probs = {0.01, 0.99};
  CHECK(shelf.told<ConfigError>() ==
        "key interleave_probs: given a mix in which an epoch has 6 samples and none of file 1, whose share is 0.01");
  config.interleave_probs = {0.5, 0.5};
  config.val_size = 9;
  const std::string left = shelf.told<ConfigError>();
  CHECK((left == "mine: no record is left to train on" || left == "other: no record is left to train on"));
}

TEST_CASE("run data: date and thinking are the keys', else the resumed run's, else the template's own") {
  Shelf shelf;
  shelf.write_tokenizer();
  shelf.lists["mine"].add(std::vector<data::Message>{{"user", "a"}, {"assistant", "b"}});
  settings::Config& config = shelf.config;
  config.template_name = "llama3_2";
  const auto date = [&] { return shelf.open().date(); };
  CHECK(data::is_date(date()));
  config.template_name = "llama3_1";
  CHECK(date() == "2024-07-26");
  shelf.earlier["date"] = "2025-01-02";
  CHECK(date() == "2025-01-02");
  CHECK(shelf.open().train().encoder().options().render.date == "2025-01-02");
  config.date = "2025-03-04";
  CHECK(date() == "2025-03-04");
  CHECK(shelf.open().train().encoder().options().render.date == "2025-03-04");
  config.date.clear();
  CHECK_FALSE(shelf.open().enable_thinking());
  config.template_name = "qwen3";
  CHECK(date() == "");
  CHECK(shelf.open().enable_thinking() == true);
  CHECK(shelf.open().train().encoder().options().render.enable_thinking);
  shelf.earlier["enable_thinking"] = false;
  CHECK(shelf.open().enable_thinking() == false);
  CHECK_FALSE(shelf.open().train().encoder().options().render.enable_thinking);
  config.enable_thinking = true;
  CHECK(shelf.open().enable_thinking() == true);
  config.enable_thinking = false;
  shelf.earlier["enable_thinking"] = true;
  CHECK(shelf.open().enable_thinking() == false);
  config.enable_thinking.reset();
  config.template_name = "chatml";
  CHECK((date() == "" && !shelf.open().enable_thinking()));
  CHECK(shelf.open().text().chat_template->name() == "chatml");
}

TEST_CASE("run data: long texts are cut to train on, and read whole to evaluate on") {
  const test::Quiet quiet;
  Shelf shelf;
  shelf.write_tokenizer();
  shelf.lists["mine"].add_text(std::string(30, 'x'));
  shelf.lists["mine"].add_text("short");
  shelf.lists["other"].add_text(std::string(20, 'y'));
  shelf.config.eval_dataset = {"other"};
  shelf.config.cutoff_len = 11;
  shelf.config.train_on_prompt = true;
  const RunData data = shelf.open();
  CHECK(data.train().has_blocks());
  CHECK(data.order().numbers() == std::vector<Index>{0, 1, 2, 3});  // 29 tokens behind the first, 10 a block
  CHECK(data.train().encoder().options().cutoff_len == 11);
  CHECK_FALSE(data.eval().has_blocks());
  CHECK(data.eval_order().size() == 1);
  CHECK(data.eval()[0].tokens.size() == 20);
  CHECK(data.eval().encoder().options().train_on_prompt);
  const auto found = data.survey(shelf.threads, shelf.config);
  CHECK((found.train.records() == 4 && found.train.labeled() == 29 + 4));
  CHECK((found.eval.records() == 1 && found.eval.labeled() == 19));
}

TEST_CASE("run data: of the records to evaluate those with an answer are answered") {
  Shelf shelf;
  shelf.write_tokenizer();
  shelf.config.template_name = "chatml";
  using Talk = std::vector<data::Message>;
  shelf.lists["mine"].add(Talk{{"user", "a"}, {"assistant", "b"}});
  for (const Talk& talk :
       {Talk{{"user", "a"}, {"assistant", "c"}}, Talk{{"user", "a"}, {"assistant", "d"}, {"user", "e"}},
        Talk{{"user", "f"}, {"assistant", "g"}}})
    shelf.lists["other"].add(talk);
  shelf.config.eval_dataset = {"other"};
  const auto answered = shelf.open().answered();
  REQUIRE(answered.size() == 2);
  CHECK(answered[0].answer() == "c");
  CHECK(answered[1].answer() == "g");
  CHECK(answered[1].record == 2);
}

}  // namespace run_data_test
