// Runs of several stages.

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lora/model/weights/weights.hpp"
#include "lora/train/trainer.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/talking_model.hpp"
#include "support/workshop.hpp"

namespace stages_test {

using namespace lora;
using namespace lora::test;

namespace {

Config full_config(const Workshop& shop, const std::string& output = "run") {
  Config config = shop.config(output);
  config.finetuning_type = "full";
  config.lora_rank.reset();
  config.lora_dropout = 0;
  config.learning_rate = 3e-3;
  config.num_train_epochs = 3;  // the default
  config.save_steps = 0;
  config.logging_steps = 1;
  return config;
}

std::map<std::string, std::string> tensors_of(const io::Path& folder) {
  std::map<std::string, std::string> tensors;
  const auto source = model::Source::open(folder);
  for (const auto& tensor : source.tensors())
    tensors[tensor.name] = {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
  return tensors;
}

std::string told(const Config& config) {
  return message_of<ConfigError>([&] { fine_tune(config); });
}

/// Three stages that differ in all that a stage may say.
Config various(const Workshop& shop, const std::string& output) {
  Config config = full_config(shop, output);
  config.weight_decay = 0.01;
  config.step_units = 2;
  config.stages = {{.name = "some", .until_step = 7, .trainable = {{R"(layers\.1\.)", "norm"}}, .warmup_ratio = 0.5},
                   {.name = "all",
                    .until_epoch = 4,
                    .learning_rate = 1e-3,
                    .lr_scheduler_type = "constant",
                    .warmup_steps = 1,
                    .cutoff_len = 6,
                    .gradient_accumulation_steps = 4,
                    .gradient_checkpointing = true},
                   {.until_step = 19,
                    .trainable = {{"embed", R"(layers\.1\.)"}},
                    .max_tokens_per_micro_batch = 20,
                    .use_curriculum = true,
                    .curriculum_stages = {{{0.5, {{"a", 0.7}, {"b", 0.3}}}, {1, {{"a", 0.2}, {"c", 0.8}}}}}}};
  return config;
}

}  // namespace

TEST_CASE(
    "stages: two that train the same take no more memory than one, and one pays for nothing that it does not train") {
  const Quiet quiet;
  const Workshop shop;
  const auto peak = [&](std::vector<settings::StageSettings> stages) {
    Config config = full_config(shop);
    config.overwrite_output_dir = true;
    config.stages = std::move(stages);
    cpu::Device dev(1);
    train::TrainingRun<cpu::Device, float>(dev, config, model::Source::open(config.model_name_or_path), {}).run();
    return dev.allocated().peak();
  };
  const std::string first = R"(layers\.0\.)", second = R"(layers\.1\.)";
  const auto all_at_once = peak({{.trainable = {{first, second}}}});
  CHECK(peak({{.until_epoch = 1, .trainable = {{first, second}}}, {.trainable = {{first, second}}}}) == all_at_once);
  CHECK(peak({{.until_epoch = 1, .trainable = {{first}}}, {.trainable = {{second}}}}) < all_at_once);
}

TEST_CASE("stages: each has its own steps, learning rate, batch, length and classes") {
  Quiet quiet;
  const Workshop shop;
  write_classes(shop.temp / "train.jsonl", {"a", "b", "c"});
  const Config config = various(shop, "run");
  fine_tune(config);
  // 22 records, 4 a step: 6 steps an epoch, so that stage 1 ends in the second epoch; stage 2 has epochs 3 and 4, 8 a
  // step, 3 steps each.
  std::vector<Index> stage_of;
  std::vector<double> rates;
  for (const io::Json& line : log_of(shop.temp / "run")) {
    if (!line.contains("learning_rate")) continue;
    stage_of.push_back(line.at("stage"));
    rates.push_back(line.at("learning_rate"));
  }
  std::vector<Index> expected(7, 1);
  expected.insert(expected.end(), 6, 2);
  expected.insert(expected.end(), 6, 3);
  CHECK(stage_of == expected);
  const optim::Schedule first{optim::Decay::cosine, 4, 7}, third{optim::Decay::cosine, 3, 6};
  for (Index step = 0; step < 19; ++step) {
    CAPTURE(step);
    const double rate = rates[static_cast<std::size_t>(step)];
    if (step < 7) CHECK(rate == 3e-3 * first.factor(step));
    if (step == 7) CHECK(rate == 0);
    if (step > 7 && step < 13) CHECK(rate == 1e-3);
    if (step >= 13) CHECK(rate == 3e-3 * third.factor(step - 13));
  }
  const io::Json counts = io::read_json(shop.temp / "run" / "training_metrics.json").at("curriculum");
  CHECK(counts == io::Json::parse(R"([{"from_step": 13, "to_step": 16, "counts": {"a": 8, "b": 4, "c": 0}},
                                      {"from_step": 16, "to_step": 19, "counts": {"a": 2, "b": 0, "c": 10}}])"));
  CHECK(quiet.said(
      "stage 1 (some): steps 1 to 7: 7 of 4 sequences, 6 an epoch; learning rate 0.003; 16 of 25 tensors train"));
  CHECK(quiet.said("stage 3: steps 14 to 19: 6 of 4 sequences; "));
  CHECK(quiet.said("step 7: stage 2 (all) begins"));
  CHECK(quiet.said("curriculum: steps 14 to 16: 8 a, 4 b"));
}

TEST_CASE("stages: the evaluation of a stage's last step is told before the next stage begins, resumed in it as well") {
  const Workshop shop;
  write_classes(shop.temp / "train.jsonl", {"a", "b", "c"});
  Config config = various(shop, "whole");
  config.eval_steps = 1;
  std::vector<std::string> told;
  std::atomic<int> stop = 0;
  RunOptions options;
  options.stop = &stop;
  options.log = [&](log::Level, std::string_view line) {
    for (const char* words : {" begins", ": evaluation loss", " ends early"})
      if (line.find(words) != line.npos && line.starts_with("st"))
        told.emplace_back(line.substr(0, line.find(" loss")));
  };
  options.on_step = [&](const StepMetrics& metrics, Running&) { told.push_back(concat("done ", metrics.step)); };
  options.on_evaluation = [&](const Evaluation& metrics, Running& running) {
    told.push_back(concat("called ", metrics.step));
    if (config.resume_from_checkpoint == "auto" && told.size() == 2) return;  // its checkpoint has the next stage's
    // The model trains what the stage of the step does.
    Index trains = 0;
    running.model<cpu::Device, float>()->decoder.params().for_each(
        [&](const auto& param) { trains += param.grad.empty() ? 0 : 1; });
    CHECK((trains == 25) == (metrics.step > 7 && metrics.step <= 13));
  };
  const auto check = [&](Index from) {
    std::vector<std::string> expected;
    for (Index step = from; step <= 19; ++step) {
      if (step > from || from == 1) expected.push_back(concat("done ", step));
      expected.push_back(concat("step ", step, ": evaluation"));
      expected.push_back(concat("called ", step));
      if (step == 7) expected.push_back("step 7: stage 2 (all) begins");
      if (step == 13) expected.push_back("step 13: stage 3 begins");
    }
    CHECK(told == expected);
  };
  fine_tune(config, options);
  check(1);
  told.clear();
  const auto whole = lasting_files(config.output_dir);
  for (const Index last : {7, 13, 10}) {
    CAPTURE(last);
    config.output_dir = (shop.temp / concat("part ", last)).native();
    config.resume_from_checkpoint.clear();
    RunOptions stopped = options;
    stopped.evaluates = [&](Running& running) {  // stopped while it evaluates that step
      stop = running.state().step == last ? 1 : 0;
      return true;
    };
    CHECK(fine_tune(config, stopped).stopped_by == 1);
    CHECK(told.back() == concat("done ", last));
    told.clear();
    stop = 0;
    config.resume_from_checkpoint = "auto";
    fine_tune(config, options);
    check(last);
    auto found = lasting_files(config.output_dir);
    std::erase_if(found, [&](const auto& file) { return whole.count(file.first) == 0; });
    expect_same(whole, found);
    told.clear();
  }
}

TEST_CASE("stages: resumed at any step, a run ends with the bytes of the uninterrupted one") {
  const Quiet quiet;
  const Workshop shop;
  write_classes(shop.temp / "train.jsonl", {"a", "b", "c"});
  for (const char* dtype : {"float32", "bfloat16"}) {
    CAPTURE(dtype);
    if (dtype[0] == 'f' && !effort(true, false, "stages: resumed in float32")) continue;
    Config whole = various(shop, concat("whole ", dtype)), part = various(shop, concat("part ", dtype));
    whole.dtype = part.dtype = dtype;
    fine_tune(whole);
    for (const Index last : {3, 7, 8, 13, 14, 16, 18, 0}) {  // 0: to the end
      Config next = part;
      if (last != 3) next.resume_from_checkpoint = "auto";
      std::atomic<int> stop = 0;
      RunOptions options;
      options.stop = &stop;
      options.on_step = [&](const StepMetrics& metrics) { stop = metrics.step == last ? 1 : 0; };
      CHECK(fine_tune(next, std::move(options)).stopped_by == (last == 0 ? 0 : 1));
    }
    auto expected = lasting_files(whole.output_dir), found = lasting_files(part.output_dir);
    std::erase_if(found, [&](const auto& file) { return expected.count(file.first) == 0; });
    expect_same(expected, found);
  }
}

TEST_CASE("stages: what a stage does not train stays, and what begins later begins as in a run of its own") {
  const Quiet quiet;
  const Workshop shop;
  // Disjoint tensors and the file's order: the stages share nothing but the weights.
  Config config = full_config(shop);
  config.shuffle = false;
  config.stages = {{.until_epoch = 2, .trainable = {{"mlp"}}, .learning_rate = 1e-3},
                   {.until_epoch = 4, .trainable = {{"self_attn", "norm"}}, .learning_rate = 2e-3, .warmup_steps = 2}};
  const RunResult staged = fine_tune(config);
  Config first = full_config(shop, "first"), second = full_config(shop, "second");
  first.shuffle = second.shuffle = false;
  first.num_train_epochs = second.num_train_epochs = 2;
  first.trainable = {"mlp"};
  first.learning_rate = 1e-3;
  const RunResult halfway = fine_tune(first);
  second.model_name_or_path = halfway.final_model.native();
  second.trainable = {"self_attn", "norm"};
  second.learning_rate = 2e-3;
  second.warmup_steps = 2;
  const RunResult apart = fine_tune(second);
  CHECK(tensors_of(staged.final_model) == tensors_of(apart.final_model));
  const auto before = tensors_of(shop.temp / "model"), after = tensors_of(staged.final_model);
  CHECK(before.at("model.embed_tokens.weight") == after.at("model.embed_tokens.weight"));
  CHECK(before.at("model.layers.0.mlp.up_proj.weight") != after.at("model.layers.0.mlp.up_proj.weight"));
  CHECK(tensors_of(halfway.final_model) != after);
}

TEST_CASE("stages: one may be longer or shorter than the run says, and an evaluation is as long as the longest") {
  const Quiet quiet;
  const Workshop shop;
  Config config = full_config(shop);
  config.cutoff_len = 5;
  config.stages = {{.until_step = 4}, {.until_step = 8, .cutoff_len = 40}};
  fine_tune(config);
  double loss = 0;
  for (const io::Json& line : log_of(shop.temp / "run")) {
    if (line.contains("eval_loss")) loss = line.at("eval_loss");
    if (line.contains("tokens")) CHECK((line.at("tokens").get<Index>() > 20) == (line.at("stage") == 2));
  }
  config.output_dir = (shop.temp / "same").native();
  config.cutoff_len = 40;
  config.stages = {{.until_step = 4, .cutoff_len = 5}, {.until_step = 8}};
  CHECK(fine_tune(config).metrics.eval_loss == loss);
}

TEST_CASE("stages: an adapter trains in stages too, and one stage is a run without any") {
  const Quiet quiet;
  const Workshop shop;
  Config plain = shop.config("plain");
  fine_tune(plain);
  Config one = shop.config("one");
  one.stages = {{.name = "only"}};
  fine_tune(one);
  CHECK(adapter_values(shop.temp / "plain" / "final_model") == adapter_values(shop.temp / "one" / "final_model"));
  CHECK(numbers_of(shop.temp / "plain") == numbers_of(shop.temp / "one"));
  Config two = shop.config("two");
  two.num_train_epochs = 3;
  two.stages = {{.until_step = 5}, {.until_step = 9, .learning_rate = 0}};
  fine_tune(two);
  two.output_dir = (shop.temp / "half").native();
  two.stages = {{.until_step = 5}};
  fine_tune(two);
  CHECK(adapter_values(shop.temp / "two" / "final_model") == adapter_values(shop.temp / "half" / "final_model"));
}

TEST_CASE("stages: a run that is resumed keeps its stages") {
  const Quiet quiet;
  const Workshop shop;
  Config config = full_config(shop);
  config.stages = {{.until_step = 3, .trainable = {{"norm"}}}, {.until_step = 6}};
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  Config other = config;
  other.stages[1].learning_rate = 1e-5;
  CHECK(told(other).starts_with(R"(key stages: given [{"until_step":3,"trainable":["norm"]},{"until_step":6,"learn)"));
  other.stages.clear();
  other.max_steps = 6;
  CHECK(told(other).starts_with("key stages: given [], but "));
}

TEST_CASE("stages: what cannot be is refused before any work, and names the stage") {
  const Quiet quiet;
  const Workshop shop;
  const auto with = [&](std::vector<settings::StageSettings> stages) {
    Config config = full_config(shop);
    config.stages = std::move(stages);
    return told(config);
  };
  const std::string allowed = ", allowed: [{\"name\": text, ";
  CHECK(with({{.until_step = 5}, {.until_step = 5}})
            .starts_with("key stages: given stage 2 with until_step 5 after 5" + allowed));
  CHECK(with({{.until_epoch = 2}, {.until_epoch = 1}})
            .starts_with("key stages: given stage 2 with until_epoch 1 after 2" + allowed));
  CHECK(with({{.name = "a"}, {.until_step = 5}})
            .starts_with("key stages: given stage 1 with neither until_step nor until_epoch" + allowed));
  CHECK(with({{.until_step = 5, .until_epoch = 1}})
            .starts_with("key stages: given stage 1 with both until_step and until_epoch" + allowed));
  CHECK(with({{.until_step = 0}}).starts_with("key stages: given stage 1 with until_step 0 after 0" + allowed));
  CHECK(with({{.until_epoch = NAN}}).starts_with("key stages: given stage 1 with until_epoch nan after 0" + allowed));
  CHECK(with({{.until_step = 8}, {.name = "late", .until_epoch = 2}}) ==
        "key stages: stage 2 (late) would end with epoch 2, but it begins after epoch 2; allowed: a "
        "later end; hint: a stage begins with an epoch of its own");
  CHECK(with({{.until_step = 5}, {.name = "b", .until_step = 9, .trainable = {{"norm", "lstm"}}}}) ==
        "stage 2 (b): key trainable: given lstm, which is found in the name of no tensor; names are such as "
        "model.layers.0.self_attn.q_proj.weight, model.layers.0.input_layernorm.weight and model.embed_tokens.weight");
  CHECK(with({{.until_step = 5, .learning_rate = -1}}) ==
        "stage 1: key learning_rate: given -1, allowed: a number, at least 0");
  CHECK(with({{.name = "x", .until_step = 5, .lr_scheduler_type = "step"}}) ==
        "stage 1 (x): key lr_scheduler_type: given step, allowed: one of linear, cosine, constant");
  CHECK(with({{.until_step = 5, .finetuning_type = "lora"}})
            .starts_with("stage 1: key finetuning_type: given lora where the run has full; allowed: the same"));
  CHECK(with({{.until_step = 5, .curriculum_stages = {{{1, {{"a", 1}}}}}}})
            .starts_with("stage 1: key curriculum_stages: given "));
  Config adapter = shop.config();
  adapter.num_train_epochs = 3;
  adapter.stages = {{.until_step = 5, .trainable = {{"norm"}}}};
  CHECK(told(adapter).starts_with("stage 1: key trainable: given norm, allowed: with finetuning_type full"));
  Config longer = full_config(shop);
  longer.max_steps = 20;
  longer.stages = {{.until_step = 5}};
  CHECK(told(longer) == "key max_steps: given 20, allowed: with stages, the last of which has no end of its own");
  longer.max_steps = 4;
  longer.stages = {{.until_step = 5}, {}};
  CHECK(told(longer).starts_with("key stages: stage 2 would end with step 4, but it begins after step 5"));
  CHECK_FALSE(io::is_there(shop.temp / "run"));
}

TEST_CASE("stages: a stage with a curriculum has the epochs of one without, and an order of its own") {
  Quiet quiet;
  const Workshop shop;
  write_classes(shop.temp / "train.jsonl", {"a", "b"});
  Config config = full_config(shop);
  config.use_curriculum = true;
  config.curriculum_stages = {{1, {{"a", 0.5}, {"b", 0.5}}}};
  config.shuffle = true;
  // 22 records, 4 a step: 6 full steps an epoch, though the records are used up before.
  config.stages = {{.until_epoch = 1}, {.until_epoch = 2}, {.until_epoch = 3, .use_curriculum = false}};
  std::vector<Index> tokens;
  RunOptions options;
  options.on_step = [&](const StepMetrics& step) { tokens.push_back(step.tokens); };
  fine_tune(config, options);
  CHECK(quiet.said("stage 2: steps 7 to 12: "));
  CHECK(quiet.said("stage 3: steps 13 to 18: "));
  CHECK(log_of(shop.temp / "run").back().at("step") == 18);
  REQUIRE(tokens.size() == 18);
  CHECK(std::vector<Index>(tokens.begin(), tokens.begin() + 6) !=
        std::vector<Index>(tokens.begin() + 6, tokens.begin() + 12));
  for (const io::Json& line : log_of(shop.temp / "run"))
    if (line.contains("epoch")) CHECK(line.at("epoch") <= 3.0);
}

TEST_CASE("stages: gradients of a stage are checkpointed without a limit, and what memory needs may change on resume") {
  Quiet quiet;
  const Workshop shop;
  Config config = full_config(shop);
  config.stages = {{.until_step = 3, .gradient_checkpointing = true},
                   {.until_step = 6, .gradient_checkpointing = true}};
  std::atomic<int> stop{0};
  RunOptions options;
  options.stop = &stop;
  options.on_step = [&](const StepMetrics& step) { stop = step.step == 4; };
  fine_tune(config, options);
  CHECK_FALSE(quiet.said("to stay below"));
  CHECK(quiet.said("most memory is needed by stage 1"));
  config.stages[1].gradient_checkpointing = false;
  config.stages[1].max_tokens_per_micro_batch = 40;
  config.resume_from_checkpoint = "auto";
  CHECK(fine_tune(config).metrics.steps == 6);
  const std::string card = io::read_file(shop.temp / "run" / "final_model" / "README.md");
  CHECK(card.find("| learning rate, stage 2 | 0.003 |") != card.npos);
}

TEST_CASE("stages: those that train the same share the list of it") {
  const Workshop shop;
  Config config = full_config(shop);
  config.trainable = {"norm"};
  for (Index i = 1; i <= 10'000; ++i) config.stages.push_back({.until_step = i});
  config.stages[1].trainable = {{"mlp"}};
  config.stages[3].trainable = {{"norm"}};
  const auto source = model::Source::open(config.model_name_or_path);
  const auto lists = inputs::trainable_in_stages(config, source.config());
  REQUIRE(lists.size() == 10'000);
  for (std::size_t i = 0; i < lists.size(); ++i) CHECK((lists[i] == lists[0]) == (i != 1));
}

TEST_CASE("stages: a warm-up that a stage does not get through is told, and which tensors train") {
  Quiet quiet;
  const Workshop shop;
  Config config = full_config(shop);
  config.warmup_steps = 3;
  config.stages = {{.name = "short", .until_step = 3, .trainable = {{"norm"}}, .learning_rate = 0.25},
                   {.until_step = 7}};
  fine_tune(config);
  const std::string warning =
      "stage 1 (short): the warm-up of 3 steps does not end within the 3 steps: the learning rate ";
  CHECK(quiet.said(warning + "never reaches 0.25"));
  CHECK_FALSE(quiet.said("stage 2: the warm-up"));
  CHECK(quiet.said("; 9 of 25 tensors train, "));
  CHECK(quiet.said("model.layers.0..1.{input_layernorm,post_attention_layernorm}.weight"));
  config = shop.config("plain");
  config.max_steps = 2;
  fine_tune(config);
  CHECK(quiet.said("28 of 28 tensors train, "));
  CHECK(quiet.said("\nthe warm-up of 3 steps does not end within the 2 steps: the learning rate never reaches 0.01\n"));
}

TEST_CASE("stages: one in which nothing is left to train is told before the first step") {
  const Quiet quiet;
  const Workshop shop;
  Config config = full_config(shop);
  config.stages = {{.until_step = 3}, {.name = "norms", .until_step = 6, .trainable = {{"norm"}}}};
  RunOptions options;
  options.trains = [](std::string_view name) { return name.find("mlp") != name.npos; };
  CHECK(message_of<ConfigError>([&] { fine_tune(config, options); }) ==
        "stage 2 (norms): none of the model's 25 trainable tensors is left to train");
  CHECK_FALSE(io::is_there(shop.temp / "run"));
}

TEST_CASE("stages: blocks of long texts are the same in all stages") {
  const Quiet quiet;
  const Workshop shop;
  write_talking_model(shop.temp / "model");
  io::write_file(shop.temp / "train.jsonl", std::string_view("{\"text\": \"abcdefghijklmnopqrstuvwxyz\"}\n"));
  Config config = full_config(shop);
  config.eval_dataset.clear();
  config.eval_steps.reset();
  config.warmup_steps = 0;
  config.cutoff_len = 8;
  config.stages = {{.until_step = 2, .cutoff_len = 6}, {.until_step = 4}};
  CHECK(told(config) ==
        "stage 1: key cutoff_len: given 6, but texts are cut into blocks of 8 tokens, whose ends it would cut off; "
        "allowed: the same in all stages");
  config.stages[0].cutoff_len = 8;
  CHECK(fine_tune(config).metrics.steps == 4);
}

TEST_CASE("stages: from the command line, a file and run_config.json they are the same") {
  using namespace settings;
  const std::string text =
      R"([{"name": "a", "until_step": 3, "trainable": ["x", "y"], "learning_rate": 1e-4, "lr_scheduler_type": "cosine",)"
      R"( "warmup_steps": 2, "cutoff_len": 9, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 3,)"
      R"( "finetuning_type": "full", "max_tokens_per_micro_batch": 99, "gradient_checkpointing": true},)"
      R"( {"until_epoch": 2.5, "trainable": [], "warmup_ratio": 0.5, "use_curriculum": true,)"
      R"( "curriculum_stages": [{"until": 1, "mix": {"a": 1}}]}, {"name": "rest"}])";
  Config line, file, again;
  set_from_text(line, *find_key("stages"), text);
  read_settings(file, io::json_object({{"stages", io::parse_json(text, "file")}}), "file");
  read_settings(again, to_json(line, train_command), "run_config.json");
  REQUIRE(line.stages.size() == 3);
  CHECK(line.stages == file.stages);
  CHECK(line.stages == again.stages);
  CHECK(line.stages[0].trainable == std::vector<std::string>{"x", "y"});
  CHECK(line.stages[1].trainable == std::vector<std::string>{});
  CHECK(line.stages[1].until_epoch == 2.5);
  CHECK(line.stages[1].curriculum_stages == std::vector<data::CurriculumStage>{{1, {{"a", 1}}}});
  const auto refused = [](std::string_view json) {
    return message_of<ConfigError>([&] {
      Config config;
      set_from_text(config, *find_key("stages"), json);
    });
  };
  CHECK(refused("[1]").starts_with("key stages: stage 1: expected an object; allowed: [{"));
  CHECK(refused(R"([{"until": 3}])")
            .starts_with(R"(key stages: stage 1: the field "until"; expected name, until_step,)"));
  CHECK(
      refused(R"([{"until_step": 3}, {"learning_rate": "fast"}])")
          .starts_with(R"(key stages: stage 2: "learning_rate" is "fast"; allowed: a number, at least 0; allowed: )"));
  CHECK(refused(R"([{"until_step": 0.5}])").starts_with(R"(key stages: stage 1: "until_step" must be )"));
  CHECK(refused("first").starts_with("key stages: the value:1:2: "));
  // A key of the command line that every stage says itself would do nothing.
  Config config;
  set_from_text(config, *find_key("model_name_or_path"), "m");
  set_from_text(config, *find_key("dataset"), "d");
  set_from_text(config, *find_key("output_dir"), "o");
  config.stages = {{.until_step = 3, .learning_rate = 1e-3}, {.until_step = 5, .learning_rate = 1e-4}};
  set_from_text(config, *find_key("learning_rate"), "1");
  CHECK(message_of<ConfigError>([&] { validate(config, train_command); }) ==
        "key learning_rate: given, which has no effect here; allowed: where not every stage says otherwise");
  config.stages[1].learning_rate.reset();
  CHECK(message_of<ConfigError>([&] { validate(config, train_command); }) == "nothing was thrown");
}

}  // namespace stages_test
