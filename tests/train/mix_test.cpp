// Runs over several files, in shares that their settings say.

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "support/message_of.hpp"
#include "support/packed.hpp"
#include "support/quiet.hpp"
#include "support/talking_model.hpp"
#include "support/workshop.hpp"

namespace mix_run_test {

using namespace lora;
using namespace lora::test;

namespace {

/// Two files of token records, of 40 and of 10.
struct Library : Workshop {
  Library() {
    io::write_file(temp / "many.jsonl", std::string_view(records(40, 0)));
    io::write_file(temp / "few.jsonl.gz", std::string_view(gzipped(records(10, 3))));
  }

  static std::string records(int count, int first) {
    std::string lines;
    for (int i = first; i < first + count; ++i)
      lines += concat("{\"input_ids\": [", 1 + i % 7, ", ", 1 + i % 5, "], \"labels\": [1, ", 1 + i % 5, "]}\n");
    return lines;
  }

  Config mixed(const std::string& output, Index steps) const {
    Config config = this->config(output);
    config.dataset = {temp / "many.jsonl", temp / "few.jsonl.gz"};
    config.per_device_train_batch_size = 4;
    config.gradient_accumulation_steps = 1;
    config.max_steps = steps;
    config.save_steps = 0;
    config.eval_dataset.clear();
    config.eval_steps.reset();
    return config;
  }
};

/// Records learned from, as training_metrics.json has them.
std::vector<Index> learned_of(const io::Path& run) {
  const io::Json metrics = io::read_json(run / "training_metrics.json");
  std::vector<Index> counts;
  for (const io::Json& file : metrics.at("datasets")) counts.push_back(file.at("records").get<Index>());
  return counts;
}

}  // namespace

TEST_CASE("mix run: epochs have the shares of the files, to the record, and the run says so") {
  Quiet quiet;
  const Library library;
  Config config = library.mixed("under", -1);
  config.num_train_epochs = 3;
  config.mix_strategy = "interleave_under";
  config.interleave_probs = {0.6, 0.4};
  CHECK(fine_tune(config).metrics.steps == 21);  // three epochs of 25 sequences
  CHECK(learned_of(library.temp / "under") == std::vector<Index>{45, 30});
  CHECK(quiet.said("mix: an epoch has 25 sequences: 15 (60.0 %) of many's 40, 10 (40.0 %) of few's 10"));
  const io::Json files = io::read_json(library.temp / "under" / "training_metrics.json").at("datasets");
  CHECK(holds(io::read_file(library.temp / "under" / "final_model" / "README.md"),
              "| records learned from | 45 of many (60.0 %), 30 of few (40.0 %) |\n"));
  CHECK(files[0] == io::json_object({{"name", "many"}, {"records", 45}, {"share", 0.6}}));
  CHECK(log_of(library.temp / "under").back().at("datasets") == io::json_object({{"many", 0.6}, {"few", 0.4}}));
  bool shown = false;
  for (const std::string& line : events_of(library.temp / "under"))
    shown = shown || line.find("datasets/few=0.4") != line.npos;
  CHECK(shown);

  config = library.mixed("over", -1);
  config.num_train_epochs = 1;
  config.mix_strategy = "interleave_over";
  config.dataset[0].weight = 3;
  config.dataset[1].weight = 2;
  config.dataset[1].name = "seldom | few";
  fine_tune(config);
  CHECK(learned_of(library.temp / "over") == std::vector<Index>{40, 27});
  CHECK(quiet.said("mix: an epoch has 67 sequences: 40 (59.7 %) of many's 40, 27 (40.3 %) of seldom | few's 10"));
  CHECK(holds(io::read_file(library.temp / "over" / "final_model" / "README.md"), "27 of seldom \\| few (40.3 %) |\n"));

  config = library.mixed("concat", -1);
  config.num_train_epochs = 2;
  fine_tune(config);
  CHECK(learned_of(library.temp / "concat") == std::vector<Index>{80, 20});
  config = library.mixed("parts", -1);
  config.num_train_epochs = 1;
  config.dataset[0].max_samples = 6;
  fine_tune(config);
  CHECK(learned_of(library.temp / "parts") == std::vector<Index>{6, 10});
  config.dataset = {library.temp / "many.jsonl"};
  config.output_dir = (library.temp / "alone").native();
  fine_tune(config);
  CHECK_FALSE(io::read_json(library.temp / "alone" / "training_metrics.json").contains("datasets"));
  config.dataset[0].name = "named";
  config.output_dir = (library.temp / "named").native();
  fine_tune(config);
  CHECK(learned_of(library.temp / "named") == std::vector<Index>{40});
}

TEST_CASE("mix run: records held back are drawn in no epoch, and a file that has no others is named") {
  const Quiet quiet;
  const Library library;
  Config config = library.mixed("held", -1);
  config.num_train_epochs = 1;
  config.mix_strategy = "interleave_over";
  config.val_size = 20;
  fine_tune(config);
  const auto learned = learned_of(library.temp / "held");
  CHECK(learned[0] == learned[1]);
  CHECK(learned[0] < 40);
  config.output_dir = (library.temp / "none").native();
  config.interleave_probs = {1e-9, 1 - 1e-9};
  config.mix_strategy = "interleave_under";
  CHECK(message_of<ConfigError>([&] {
          fine_tune(config);
        }).starts_with("key interleave_probs: given a mix in which an epoch has "));
  config.mix_strategy = "interleave_over";
  CHECK(holds(message_of<ConfigError>([&] { fine_tune(config); }),
              "key interleave_probs: given a mix in which file 1 has the share 1e-09, so that an epoch needs "));
  config.interleave_probs.clear();
  config.dataset[1].max_samples = 1;
  config.val_size = 40;
  CHECK(message_of<ConfigError>([&] { fine_tune(config); }) ==
        (library.temp / "few.jsonl.gz").native() + ": no record is left to train on");
}

TEST_CASE("mix run: the records of a step that is skipped are not counted") {
  const Quiet quiet;
  const Library library;
  std::string unlabeled;
  for (int i = 0; i < 10; ++i) unlabeled += concat("{\"input_ids\": [", 1 + i, ", 2], \"labels\": [-100, -100]}\n");
  io::write_file(library.temp / "silent.jsonl", std::string_view(unlabeled));
  Config config = library.mixed("run", -1);
  config.dataset = {library.temp / "many.jsonl", library.temp / "silent.jsonl"};
  config.per_device_train_batch_size = 1;
  config.num_train_epochs = 1;
  const auto metrics = fine_tune(config).metrics;
  CHECK(metrics.steps == 50);
  CHECK(learned_of(library.temp / "run") == std::vector<Index>{40, 0});
}

TEST_CASE("mix run: stopped anywhere and resumed, it has the bits and counts of the uninterrupted one") {
  const Quiet quiet;
  const Library library;
  const auto settings_of = [&](const std::string& output) {
    Config config = library.mixed(output, 20);
    config.mix_strategy = "interleave_over";
    config.interleave_probs = {0.7, 0.3};
    return config;
  };
  fine_tune(settings_of("whole"));
  std::atomic<int> stop{0};
  for (const Index at : {3, 15}) {
    CAPTURE(at);
    stop = 0;
    Config config = settings_of("cut");
    config.overwrite_output_dir = true;
    RunOptions options;
    options.stop = &stop;
    options.on_step = [&](const StepMetrics& step) { stop = step.step == at ? 1 : 0; };
    fine_tune(config, options);
    config.overwrite_output_dir = false;
    config.resume_from_checkpoint = "auto";
    fine_tune(config);
    CHECK(adapter_values(library.temp / "cut" / "final_model") ==
          adapter_values(library.temp / "whole" / "final_model"));
    CHECK(numbers_of(library.temp / "cut") == numbers_of(library.temp / "whole"));
    CHECK(learned_of(library.temp / "cut") == learned_of(library.temp / "whole"));
  }
  Config renamed = settings_of("cut");
  renamed.resume_from_checkpoint = "auto";
  renamed.dataset[0].name = "renamed";
  renamed.max_steps = 22;
  renamed.lr_scheduler_type = "constant";
  fine_tune(renamed);
  const io::Json files = io::read_json(library.temp / "cut" / "training_metrics.json").at("datasets");
  CHECK(files[0].at("name") == "renamed");
  CHECK(files[0].at("records").get<Index>() + files[1].at("records").get<Index>() == 20 * 4 - 2 + 2 * 4);
  // Once begun, the mix stays.
  Config config = settings_of("whole");
  config.max_steps = 30;
  config.resume_from_checkpoint = "auto";
  const auto refused = [&](const auto& change) {
    Config other = config;
    change(other);
    return message_of<ConfigError>([&] { fine_tune(other); });
  };
  CHECK(refused([](Config& c) {
          c.mix_strategy = "interleave_under";
        }).starts_with("key mix_strategy: given \"interleave_under\", but "));
  CHECK(refused([](Config& c) {
          c.mix_strategy = "concat";
          c.interleave_probs.clear();
        }).starts_with("key mix_strategy: given \"concat\", but "));
  CHECK(refused([](Config& c) {
          c.interleave_probs = {0.5, 0.5};
        }).starts_with("key interleave_probs, or weights of dataset: given [0.5,0.5], but "));
  // The same records, a boundary elsewhere.
  io::write_file(library.temp / "many.jsonl", std::string_view(Library::records(39, 0)));
  const std::string last = "{\"input_ids\": [5, 5], \"labels\": [1, 5]}\n";  // record 39's
  io::write_file(library.temp / "few.jsonl.gz", std::string_view(gzipped(last + Library::records(10, 3))));
  CHECK(refused([](Config&) {}).starts_with("key records of each file: given [39,11], but "));
}

}  // namespace mix_run_test
