// Settings that a program assigns are checked as the command line's are, before anything is opened or written.

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <string>

#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace config_in_code_test {

using namespace lora;
using namespace lora::test;

TEST_CASE("config in code: a value out of its key's rule ends before anything is written") {
  const Quiet quiet;
  const Workshop shop;
  const std::pair<const char*, std::function<void(Config&)>> wrong[] = {
      {"dtype: given float8", [](Config& c) { c.dtype = "float8"; }},
      {"device: given cuda", [](Config& c) { c.device = "cuda"; }},
      {"threads: given -3", [](Config& c) { c.threads = -3; }},
      {"gradient_accumulation_steps: given 0", [](Config& c) { c.gradient_accumulation_steps = 0; }},
      {"gradient_accumulation_steps: given 1099511627776",
       [](Config& c) { c.gradient_accumulation_steps = Index{1} << 40; }},
      {"per_device_train_batch_size: given 1099511627776",
       [](Config& c) { c.per_device_train_batch_size = Index{1} << 40; }},
      {"logging_steps: given 0", [](Config& c) { c.logging_steps = 0; }},
      {"lora_dropout: given 1.5", [](Config& c) { c.lora_dropout = 1.5; }},
      {"lora_rank: given -1", [](Config& c) { c.lora_rank = -1; }},
      {"lora_target: given v_prj",
       [](Config& c) {
         c.lora_target = {"q_proj", "v_prj"};
       }},
      {"finetuning_type: given freeze", [](Config& c) { c.finetuning_type = "freeze"; }},
      {"learning_rate: given nan", [](Config& c) { c.learning_rate = std::nan(""); }},
      {"lr_scheduler_type: given cosin", [](Config& c) { c.lr_scheduler_type = "cosin"; }},
      {"on_non_finite: given go_on", [](Config& c) { c.on_non_finite = "go_on"; }},
      {"template: given quen3", [](Config& c) { c.template_name = "quen3"; }},
      {"date: given 2024-02-30", [](Config& c) { c.date = "2024-02-30"; }},
      {"val_size: given 2.5", [](Config& c) { c.val_size = 2.5; }},
      {"preview: given 3", [](Config& c) { c.preview = 3; }},
      {"eval_dataset: given together with val_size", [](Config& c) { c.val_size = 0.5; }},
      {"dataset: given nothing", [](Config& c) { c.dataset.clear(); }},
      {"no_rope_layers: given -1", [](Config& c) { c.no_rope_layers = {-1}; }},
  };
  for (const auto& entry : wrong) {
    const char* const said = entry.first;
    CAPTURE(said);
    Config config = shop.config();
    entry.second(config);
    CHECK(message_of<ConfigError>([&] { Trainer trainer(config); }).starts_with(concat("key ", said)));
    CHECK_FALSE(std::filesystem::exists(config.output_dir));
  }
}

TEST_CASE("config in code: a batch size is given by assigning it, its default too") {
  CHECK(inputs::micro_batch_limit({}).tokens == 1024);
  for (const Index size : {1, 8}) {
    Config config;
    config.per_device_train_batch_size = size;
    CHECK(inputs::micro_batch_limit(config).tokens == 0);
    CHECK(inputs::micro_batch_limit(config).sequences == size);
    config.max_tokens_per_micro_batch = 99;
    CHECK(inputs::micro_batch_limit(config).tokens == 99);
    CHECK(config.sequences_per_step() == 8 * size);
  }
}

TEST_CASE("config in code: a preview is the program's, not a Trainer's") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config();
  for (const int records : {1, 2}) {
    config.preview = records;
    CHECK(holds(message_of<ConfigError>([&] { Trainer trainer(config); }),
                concat("key preview: given ", records, ", allowed: 0 for a Trainer")));
  }
}

TEST_CASE("config in code: a Trainer trains once") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config();
  config.max_steps = 1;
  Trainer trainer(config);
  CHECK(trainer.train().metrics.steps == 1);
  CHECK_THROWS_WITH_AS(trainer.train(), "train() was called twice; another run takes another Trainer", Error);
}

}  // namespace config_in_code_test
