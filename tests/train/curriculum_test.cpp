// Runs whose mix of records changes in stages.

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/talking_model.hpp"
#include "support/workshop.hpp"

namespace curriculum_run_test {

using namespace lora;
using namespace lora::test;

namespace {

/// A thousand short records of three classes, in a field of their own.
struct School : Workshop {
  explicit School(int records = 1000) {
    std::string lines;
    for (int i = 0; i < records; ++i) {
      const char* level = i % 10 < 5 ? "explain" : i % 10 < 8 ? "reasoning" : "topology";
      lines += concat("{\"input_ids\": [", 1 + i % 7, ", ", 1 + i % 5, "], \"labels\": [1, ", 1 + i % 5,
                      "], \"difficulty\": \"", level, "\"}\n");
    }
    io::write_file(temp / "train.jsonl", std::string_view(lines));
  }

  /// The same records without the field.
  void forget_levels() const {
    std::string lines = io::read_file(temp / "train.jsonl");
    for (auto at = lines.find("difficulty"); at != lines.npos; at = lines.find("difficulty", at + 1))
      lines.replace(at, 10, "other");
    io::write_file(temp / "train.jsonl", std::string_view(lines));
  }

  Config lessons(const std::string& output, Index steps = 300) const {
    Config config = this->config(output);
    config.use_curriculum = true;
    config.per_device_train_batch_size = 1;
    config.max_steps = steps;
    config.save_steps = 0;
    config.eval_dataset.clear();
    config.eval_steps.reset();
    return config;
  }
};

io::Json counts_of(const io::Path& run) { return io::read_json(run / "training_metrics.json").at("curriculum"); }

io::Json part(Index from, Index to, Index explain, Index reasoning, Index topology) {
  return io::json_object(
      {{"from_step", from},
       {"to_step", to},
       {"counts", io::json_object({{"explain", explain}, {"reasoning", reasoning}, {"topology", topology}})}});
}

}  // namespace

TEST_CASE("curriculum run: 300 steps over 1000 records train the counts of each stage, and say so") {
  Quiet quiet;
  const School school;
  const RunResult result = fine_tune(school.lessons("run"));
  const io::Json expected =
      io::Json::array({part(0, 90, 144, 36, 0), part(90, 210, 96, 96, 48), part(210, 300, 45, 63, 72)});
  CHECK(counts_of(school.temp / "run") == expected);
  CHECK(result.metrics.steps == 300);
  CHECK(holds(
      io::read_file(school.temp / "run" / "final_model" / "README.md"),
      "| curriculum, steps 1 to 90 | 144 of explain (80.0 %), 36 of reasoning (20.0 %), 0 of topology (0.0 %) |\n"));
  CHECK(quiet.said("curriculum: steps 1 to 90: 144 explain, 36 reasoning"));
  CHECK(quiet.said("curriculum: steps 91 to 210: 96 explain, 96 reasoning, 48 topology"));
  CHECK_FALSE(quiet.said("fields of records that are not used"));
  const auto log = log_of(school.temp / "run");
  CHECK(log.back().at("mix") == io::json_object({{"explain", 0.25}, {"reasoning", 0.35}, {"topology", 0.4}}));
  CHECK(log.back().at("epoch") == 0.6);
  bool shown = false;
  for (const std::string& line : events_of(school.temp / "run"))
    shown = shown || line.find("curriculum/reasoning=0.35") != line.npos;
  CHECK(shown);
}

TEST_CASE("curriculum run: stopped inside a stage and resumed, it has the bits and counts of the uninterrupted one") {
  const Quiet quiet;
  const School school(50);
  fine_tune(school.lessons("whole", 40));
  std::atomic<int> stop{0};
  for (const Index at : {5, 12, 28, 33}) {
    CAPTURE(at);
    stop = 0;
    Config config = school.lessons("cut", 40);
    config.overwrite_output_dir = true;
    RunOptions options;
    options.stop = &stop;
    options.on_step = [&](const StepMetrics& step) { stop = step.step == at ? 1 : 0; };
    fine_tune(config, options);
    config.overwrite_output_dir = false;
    config.resume_from_checkpoint = "auto";
    config.step_units = 1;
    fine_tune(config);
    CHECK(adapter_values(school.temp / "cut" / "final_model") == adapter_values(school.temp / "whole" / "final_model"));
    CHECK(numbers_of(school.temp / "cut") == numbers_of(school.temp / "whole"));
    CHECK(counts_of(school.temp / "cut") == counts_of(school.temp / "whole"));
  }
  // Once begun, the curriculum stays.
  Config config = school.lessons("whole", 40);
  config.resume_from_checkpoint = "auto";
  const auto refused = [&](const auto& change) {
    Config other = config;
    change(other);
    return message_of<ConfigError>([&] { fine_tune(other); });
  };
  CHECK(refused([](Config& c) { c.curriculum_seed = 1; }).starts_with("key curriculum_seed: given 1, but "));
  CHECK(refused([](Config& c) {
          c.curriculum_stages = {{1, {{"explain", 1}}}};
        }).starts_with("key curriculum_stages: given [{\"until\":1.0,\"mix\":{\"explain\":1.0}}], but "));
  CHECK(refused([](Config& c) { c.use_curriculum = false; }).starts_with("key use_curriculum: given false, but "));
  CHECK(refused([](Config& c) {
          c.max_steps = 60;
        }).starts_with("key max_steps or num_train_epochs, whose steps use_curriculum divides: given [60], but "));
}

TEST_CASE("curriculum run: units of a step and the length of micro-batches do not change what is drawn") {
  const Quiet quiet;
  const School school(50);
  Config config = school.lessons("run", 20);
  fine_tune(config);
  config.output_dir = (school.temp / "units").native();
  config.step_units = 2;
  fine_tune(config);
  CHECK(counts_of(school.temp / "run") == counts_of(school.temp / "units"));
  CHECK(log_of(school.temp / "run").front().at("loss").get<double>() ==
        doctest::Approx(log_of(school.temp / "units").front().at("loss").get<double>()).epsilon(1e-5));
}

TEST_CASE("curriculum run: where no record has the field it says so and goes on without") {
  Quiet quiet;
  const School school(30);
  school.forget_levels();
  Config config = school.lessons("with", 9);
  fine_tune(config);
  CHECK(quiet.said("'difficulty' field not found in any record of "));
  CHECK(counts_of(school.temp / "with") == io::Json::array());
  const std::string said = "| curriculum | none: no record has the field difficulty |\n";
  CHECK(holds(io::read_file(school.temp / "with" / "final_model" / "README.md"), said));
  CHECK(holds(io::read_file(school.temp / "with" / "checkpoints" / "checkpoint-9" / "README.md"), said));
  config.output_dir = (school.temp / "without").native();
  config.use_curriculum = false;
  fine_tune(config);
  CHECK(numbers_of(school.temp / "with") == numbers_of(school.temp / "without"));
  CHECK_FALSE(io::read_json(school.temp / "without" / "training_metrics.json").contains("curriculum"));
  CHECK_FALSE(holds(io::read_file(school.temp / "without" / "final_model" / "README.md"), "curriculum"));
}

TEST_CASE("curriculum run: who says more of a curriculum than that there is one is told where there can be none") {
  const Quiet quiet;
  const School school(30);
  school.forget_levels();
  const Config config = school.lessons("run", 9);
  const auto told = [&](const auto& change) {
    Config other = config;
    change(other);
    return message_of<ConfigError>([&] { fine_tune(other); });
  };
  const std::string none = concat(", but no record of ", (school.temp / "train.jsonl").native(), " has the field \"");
  const std::string allowed = "\", so that there is no curriculum; allowed: a curriculum_field that records have";
  CHECK(told([](Config& c) { c.curriculum_field = "level"; }) ==
        "key curriculum_field: given \"level\"" + none + "level" + allowed);
  CHECK(told([](Config& c) { c.curriculum_seed = 7; }) ==
        "key curriculum_seed: given 7" + none + "difficulty" + allowed);
  CHECK(told([](Config& c) {
          c.curriculum_stages = {{1, {{"a", 1}}}};
        }).starts_with("key curriculum_stages: given [{\"until\":1.0,"));
  CHECK(told([](Config& c) {  // the default, but said
          c.from_command_line.insert("curriculum_field");
        })
            .starts_with("key curriculum_field: given \"difficulty\", but no record of "));
  // Of stages of the run only those that have a curriculum count.
  const auto staged = [&](bool last) {
    return [last](Config& c) {
      c.max_steps = Config{}.max_steps;
      c.num_train_epochs = Config{}.num_train_epochs;
      c.use_curriculum = false;
      c.stages.resize(2);
      c.stages[0].until_step = 2;
      c.stages[1].until_step = 4;
      c.stages[0].use_curriculum = true;
      if (last) c.stages[0].curriculum_stages = data::easy_to_hard();
    };
  };
  CHECK(told(staged(true)).starts_with("key curriculum_stages: given "));
  CHECK(told(staged(false)) == "nothing was thrown");
}

TEST_CASE("curriculum run: records to evaluate need no class") {
  Quiet quiet;
  const School school(30);
  io::write_file(school.temp / "eval.jsonl",
                 std::string_view("{\"input_ids\": [1, 2], \"labels\": [1, 2], \"difficulty\": [\"none\"]}\n"));
  Config config = school.lessons("run", 9);
  config.eval_dataset = {school.temp / "eval.jsonl"};
  fine_tune(config);
  CHECK(quiet.said("eval.jsonl: fields of records that are not used: difficulty"));
}

TEST_CASE("curriculum run: what is missing is named, other labels are counted, and numbers are labels too") {
  Quiet quiet;
  const School school(30);
  std::string lines;
  for (int i = 0; i < 12; ++i)
    lines += concat("{\"input_ids\": [1, 2, ", i + 1, "], \"labels\": [1, 2, ", i + 1, "], \"level\": ",
                    i < 4    ? "1"
                    : i < 8  ? "2"
                    : i < 10 ? "true"
                             : "null",
                    "}\n");
  io::write_file(school.temp / "train.jsonl", std::string_view(lines));
  Config config = school.lessons("run", 10);
  config.curriculum_field = "level";
  config.curriculum_stages = {{0.5, {{"1", 0.5}, {"3", 0.5}}}, {1, {{"2", 1}}}};
  fine_tune(config);
  CHECK(quiet.said("no record is labeled 3: its share of the curriculum goes to the others"));
  CHECK(quiet.said("4 records have a label of no mix, or none, and are not drawn"));
  const io::Json counts = counts_of(school.temp / "run");
  CHECK(counts[0].at("counts") == io::json_object({{"1", 10}, {"2", 0}}));
  CHECK(counts[1].at("counts") == io::json_object({{"1", 0}, {"2", 10}}));

  config.overwrite_output_dir = true;
  config.curriculum_stages = {{0.5, {{"1", 1}}}, {1, {{"4", 1}}}};
  CHECK(message_of<ConfigError>([&] { fine_tune(config); }) ==
        "key curriculum_stages: no record has a label of the mix of stage 2: \"4\"; the labels of the records, in the "
        "field that curriculum_field names: \"1\", \"2\", \"true\"");
  io::write_file(school.temp / "train.jsonl",
                 std::string_view("{\"input_ids\": [1, 2], \"labels\": [1, 2], \"level\": [1]}\n"));
  CHECK(message_of<FormatError>([&] {
          fine_tune(config);
        }).ends_with("train.jsonl:1: \"level\" is array, which can't name a class; expected a text or a number"));
}

TEST_CASE("curriculum run: a record without labels leaves its place empty and is not counted") {
  const Quiet quiet;
  const School school(30);
  io::write_file(school.temp / "train.jsonl",
                 std::string_view("{\"input_ids\": [1, 2], \"labels\": [1, 2], \"difficulty\": \"explain\"}\n"
                                  "{\"input_ids\": [1, 2], \"labels\": [1, -100], \"difficulty\": \"explain\"}\n"));
  Config config = school.lessons("run", 4);
  config.curriculum_stages = {{1, {{"explain", 1}}}};
  fine_tune(config);
  CHECK(counts_of(school.temp / "run")[0].at("counts") == io::json_object({{"explain", 4}}));
}

TEST_CASE("curriculum run: where nothing was learned it is an error, and labels stay within a line") {
  Quiet quiet;
  const School school(30);
  io::write_file(school.temp / "train.jsonl",
                 std::string_view("{\"input_ids\": [1, 2], \"labels\": [1, 2], \"difficulty\": \"a\"}\n"
                                  "{\"input_ids\": [1, 2], \"labels\": [1, -100], \"difficulty\": \"b\\nc\"}\n"));
  Config config = school.lessons("run", 4);
  config.curriculum_stages = {{1, {{"b\nc", 0.5}, {"d", 0.25}, {"e\nf", 0.25}}}};
  CHECK(message_of<Error>([&] { fine_tune(config); }) ==
        "no step had a labeled token: nothing was learned, and no final_model is written");
  CHECK(quiet.said("no record is labeled d, e\\nf: their shares of the curriculum go to the others"));
  CHECK(quiet.said("curriculum: steps 1 to 4: 8 b\\nc"));
}

TEST_CASE("curriculum run: blocks of a long text have its class") {
  const Quiet quiet;
  School school(30);
  write_talking_model(school.temp / "model");
  io::write_file(
      school.temp / "train.jsonl",
      std::string_view("{\"text\": \"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\", \"difficulty\": "
                       "\"a\"}\n{\"text\": \"short\", \"difficulty\": \"b\"}\n"));
  Config config = school.lessons("run", 6);
  config.cutoff_len = 12;
  config.curriculum_stages = {{1, {{"a", 0.75}, {"b", 0.25}}}};
  fine_tune(config);
  CHECK(counts_of(school.temp / "run")[0].at("counts") == io::json_object({{"a", 9}, {"b", 3}}));
}

}  // namespace curriculum_run_test
