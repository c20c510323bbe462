// What a DeepSpeed file sets, what it may not contradict, and what of it is refused.

#include "lora/settings/deepspeed.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/settings/settings.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace deepspeed_test {

using namespace lora;
using namespace lora::settings;

namespace {

struct Shop {
  test::TempFolder temp;
  std::string file = (temp / "ds.json").native();

  Config applied(std::string_view json, Config config = {}, Command command = train_command) const {
    io::write_file(file, json);
    config.deepspeed = file;
    apply_deepspeed(config, command);
    const std::string once = io::to_text(to_json(config, ~0u));
    apply_deepspeed(config, command);
    CHECK(io::to_text(to_json(config, ~0u)) == once);
    return config;
  }
  std::string refusal(std::string_view json, const Config& config = {}) const {
    const std::string text = test::message_of<ConfigError>([&] { (void)applied(json, config); });
    return text.starts_with("key deepspeed: " + file) ? text.substr(("key deepspeed: " + file + " has ").size()) : text;
  }
};

}  // namespace

TEST_CASE("deepspeed: a whole file sets the keys, and what says how DeepSpeed works has no effect") {
  const Shop shop;
  Config two;
  two.ranks = 2;
  const Config config = shop.applied(R"({
    "train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
    "gradient_clipping": 0.5, "steps_per_print": 100, "wall_clock_breakdown": false, "prescale_gradients": false,
    "bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 0, "loss_scale_window": 1000},
    "zero_optimization": {"stage": 3, "overlap_comm": true, "reduce_bucket_size": 5e8,
      "offload_optimizer": {"device": "cpu", "pin_memory": true}, "offload_param": {"device": "none"}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.8, 0.95], "eps": 1e-7, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_type": "linear", "warmup_min_lr": 0,
      "warmup_max_lr": 1e-4, "warmup_num_steps": 20, "total_num_steps": "auto"}},
    "activation_checkpointing": {"partition_activations": true}, "tensorboard": {"enabled": true, "output_path": "x"}
  })",
                                     two);
  CHECK(config.per_device_train_batch_size == 2);
  CHECK(config.gradient_accumulation_steps == 4);
  CHECK(config.max_grad_norm == 0.5);
  CHECK(config.dtype == "bfloat16");
  CHECK(config.zero_stage == 3);
  CHECK(config.offload == "optimizer");
  CHECK(config.learning_rate == 1e-4);
  CHECK(config.adam_beta1 == 0.8);
  CHECK(config.adam_beta2 == 0.95);
  CHECK(config.adam_epsilon == 1e-7);
  CHECK(config.weight_decay == 0.1);
  CHECK(config.lr_scheduler_type == "linear");
  CHECK(config.warmup_steps == 20);
}

TEST_CASE("deepspeed: a file that is not there is told with its key") {
  Config config;
  config.deepspeed = "/does/not/exist.json";
  CHECK(test::message_of<ConfigError>([&] { apply_deepspeed(config, train_command); }) ==
        "key deepspeed: given /does/not/exist.json, which is no file; allowed: a file of DeepSpeed's settings");
}

TEST_CASE("deepspeed: auto and null are the run's own") {
  const Shop shop;
  Config own;
  own.learning_rate = 3e-4;
  own.dtype = "float32";
  own.gradient_accumulation_steps = 3;
  const Config config = shop.applied(R"({
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto", "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}, "amp": null,
    "zero_optimization": {"stage": "auto"}, "sparse_gradients": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}
  })",
                                     own);
  own.deepspeed = shop.file;
  CHECK(io::to_text(to_json(config, ~0u)) == io::to_text(to_json(own, ~0u)));
  CHECK(shop.applied(R"({"optimizer": {"params": {"betas": ["auto", 0.9]}}})").adam_beta2 == 0.9);
}

TEST_CASE("deepspeed: precision and offloads are what their parts come to") {
  const Shop shop;
  const auto dtype = [&](std::string_view json) { return shop.applied(json).dtype; };
  CHECK(dtype(R"({"fp16": {"enabled": true}})") == "float16");
  CHECK(dtype(R"({"bfloat16": {"enabled": true}})") == "bfloat16");
  CHECK(dtype(R"({"fp16": {"enabled": false}})") == "auto");
  CHECK(dtype(R"({"fp16": {"enabled": false}, "bf16": {"enabled": "auto"}})") == "auto");
  CHECK(dtype(R"({"fp16": {"enabled": false}, "bf16": {"enabled": false}})") == "float32");
  CHECK(shop.refusal(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})")
            .ends_with("fp16 and bf16; allowed: one of the two"));
  CHECK(shop.refusal(R"({"fp16": {"enabled": 1}})") == "fp16.enabled 1, expected true, false or auto");
  const auto offload = [&](std::string_view json) { return shop.applied(json).offload; };
  CHECK(offload(R"({"zero_optimization": {"offload_param": {"device": "cpu"}}})") == "params");
  CHECK(offload(
            R"({"zero_optimization": {"offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}})") ==
        "all");
  CHECK(offload(R"({"zero_optimization": {"offload_optimizer": {"device": "none"}}})") == "none");
  CHECK(offload(R"({"zero_optimization": {"cpu_offload": true}})") == "optimizer");
  CHECK(
      shop.applied(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_num_steps": 0}}})")
          .lr_scheduler_type == "constant");
}

TEST_CASE("deepspeed: what is not enabled says nothing, and what the file leaves open is the run's own or refused") {
  const Shop shop;
  const std::string plain = io::to_text(to_json(shop.applied("{}"), ~0u));
  for (const std::string_view json :
       {R"({"amp": {"enabled": false, "opt_level": "O2"}})", R"({"amp": {"enabled": "auto", "opt_level": "auto"}})",
        R"({"curriculum_learning": {"enabled": false, "curriculum_type": "seqlen"}})",
        R"({"fp16": {"enabled": false, "loss_scale": 128}})", R"({"gradient_predivide_factor": 1.0})"}) {
    const std::string text(json);
    CAPTURE(text);
    CHECK(io::to_text(to_json(shop.applied(json), ~0u)) == plain);
  }
  Config config;
  config.offload = "params";
  CHECK(shop.applied(R"({"zero_optimization": {"offload_optimizer": {"device": "none"}}})", config).offload ==
        "params");
  config.offload = "optimizer";
  CHECK(shop.applied(R"({"zero_optimization": {"offload_param": {"device": "none"}}})", config).offload == "optimizer");
  CHECK(shop.refusal(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear"}}})") ==
        "scheduler.type \"WarmupLR\", whose warmup_num_steps would be 1000; allowed: with that, or \"auto\", or "
        "warmup_steps as a key");
  CHECK(shop.refusal(R"({"optimizer": {"type": "AdamW"}})") ==
        "optimizer.type \"AdamW\", whose lr would be 0.001; allowed: with params.lr, or \"auto\", or learning_rate as "
        "a key");
  config = {};
  config.learning_rate = 1e-3;
  CHECK(shop.applied(R"({"optimizer": {"type": "AdamW"}})", config).learning_rate == 1e-3);
}

TEST_CASE("deepspeed: a key that was given and the file may not differ") {
  const Shop shop;
  Config config;
  config.learning_rate = 1e-4;
  CHECK(shop.refusal(R"({"optimizer": {"params": {"lr": 2e-5}}})", config) ==
        "key learning_rate: given 0.0001, but " + shop.file +
            " has optimizer.params.lr 2e-05; allowed: the same, or \"auto\" in the file, which is the key's");
  CHECK(shop.applied(R"({"optimizer": {"params": {"lr": 1e-4}}})", config).learning_rate == 1e-4);
  // A default that was given on the command line was meant.
  Config given;
  set_from_text(given, *find_key("gradient_accumulation_steps"), "8");
  CHECK(shop.refusal(R"({"gradient_accumulation_steps": 4})", given)
            .starts_with("key gradient_accumulation_steps: given 8, but "));
  CHECK(
      shop.refusal(R"({"gradient_clipping": -1})").starts_with(shop.file + ": gradient_clipping: key max_grad_norm: "));
  config = {};
  config.ranks = 3;
  CHECK(
      shop.refusal(R"({"train_batch_size": 16})", config) ==
      "train_batch_size 16, but a step has 24 sequences: per_device_train_batch_size 1 x gradient_accumulation_steps 8 "
      "x processes 3");
  CHECK(shop.applied(R"({"train_batch_size": 24})", config).sequences_per_step() == 24);
  CHECK(shop.applied(R"({"train_batch_size": 999})", config, plan_command).sequences_per_step() == 24);
}

TEST_CASE("deepspeed: what would change the run and has no counterpart is refused by its name") {
  const Shop shop;
  struct Case {
    std::string_view json, begin;
  };
  for (const Case& one : {
           Case{R"({"zero_optimization": {"offload_param": {"device": "nvme"}}})",
                "zero_optimization.offload_param.device \"nvme\", which has no counterpart; allowed: none or cpu"},
           {R"({"zero_optimization": {"offload_param": {"nvme_path": "/x"}}})",
            "zero_optimization.offload_param.nvme_path \"/x\", which is not understood; "},
           {R"({"zero_optimization": {"mics_shard_size": 8}})", "zero_optimization.mics_shard_size 8, which is not"},
           {R"({"optimizer": {"type": "Lion", "params": {"lr": "auto"}}})",
            "optimizer.type \"Lion\", which has no counterpart; allowed: AdamW "},
           {R"({"optimizer": {"params": {"adam_w_mode": false}}})", "optimizer.params.adam_w_mode false, which has no"},
           {R"({"optimizer": {"params": {"momentum": 0.9}}})",
            "optimizer.params.momentum 0.9, which is not understood"},
           {R"({"optimizer": {"params": {"betas": [0.9]}}})", "optimizer.params.betas [0.9], expected two numbers"},
           {R"({"scheduler": {"type": "OneCycle"}})", "scheduler.type \"OneCycle\", which has no counterpart; "},
           {R"({"scheduler": {"type": "WarmupLR"}})", "scheduler.type \"WarmupLR\", which warms up by a logarithm"},
           {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "log"}}})",
            "scheduler.type \"WarmupLR\", which"},
           {R"({"scheduler": {"params": {"warmup_min_lr": 0.1}}})", "scheduler.params.warmup_min_lr 0.1, which has no"},
           {R"({"scheduler": {"params": {"total_num_steps": 100}}})",
            "scheduler.params.total_num_steps 100, which the"},
           {R"({"fp16": {"enabled": true, "loss_scale": 128}})",
            "fp16.loss_scale 128, which has no counterpart; allowed: 0 or auto"},
           {R"({"prescale_gradients": true})",
            "prescale_gradients true, which has no counterpart; allowed: false or auto"},
           {R"({"sparse_gradients": true})", "sparse_gradients true, which has no counterpart"},
           {R"({"amp": {"enabled": true}})", "amp.enabled true, which is not understood"},
           {R"({"communication_data_type": "fp16"})", "communication_data_type \"fp16\", which has no counterpart; "},
           {R"({"gradient_predivide_factor": 2.0})", "gradient_predivide_factor 2.0, which has no counterpart"},
           {R"({"curriculum_learning": {"enabled": true}})",
            "curriculum_learning.enabled true, which is not understood"},
           {R"({"zero_optimisation": {"stage": 1}})", "zero_optimisation.stage 1, which is not understood; remove it"},
       }) {
    const std::string json(one.json), begin(one.begin), text = shop.refusal(json);
    CAPTURE(json);
    CAPTURE(text);
    CHECK(text.starts_with(begin));
  }
  Config config;
  config.deepspeed = (shop.temp / "nothing.json").native();
  CHECK(test::message_of<Error>([&] { apply_deepspeed(config, train_command); }).find("nothing.json") !=
        std::string::npos);
  io::write_file(shop.file, std::string_view("[1]"));
  config.deepspeed = shop.file;
  CHECK(test::message_of<ConfigError>([&] { apply_deepspeed(config, train_command); }) ==
        shop.file + ": expected an object");
}

TEST_CASE("deepspeed: each field that says how DeepSpeed works may have any value, and one of another name may not") {
  const Shop shop;
  const std::string_view names[] = {"activation_checkpointing.",
                                    "aio.",
                                    "checkpoint.",
                                    "comms_config.",
                                    "comms_logger.",
                                    "csv_monitor.",
                                    "dump_state",
                                    "flops_profiler.",
                                    "memory_breakdown",
                                    "monitor_config.",
                                    "steps_per_print",
                                    "tensorboard.",
                                    "wall_clock_breakdown",
                                    "wandb.",
                                    "zero_allow_untested_optimizer",
                                    "zero_force_ds_cpu_optimizer",
                                    "bf16.auto_cast",
                                    "fp16.auto_cast",
                                    "fp16.consecutive_hysteresis",
                                    "fp16.hysteresis",
                                    "fp16.initial_scale_power",
                                    "fp16.loss_scale_window",
                                    "fp16.min_loss_scale",
                                    "optimizer.params.torch_adam",
                                    "zero_optimization.allgather_bucket_size",
                                    "zero_optimization.allgather_partitions",
                                    "zero_optimization.contiguous_gradients",
                                    "zero_optimization.elastic_checkpoint",
                                    "zero_optimization.ignore_unused_parameters",
                                    "zero_optimization.load_from_fp32_weights",
                                    "zero_optimization.offload_optimizer.buffer_count",
                                    "zero_optimization.offload_optimizer.fast_init",
                                    "zero_optimization.offload_optimizer.pin_memory",
                                    "zero_optimization.offload_optimizer.pipeline",
                                    "zero_optimization.offload_optimizer.pipeline_read",
                                    "zero_optimization.offload_optimizer.pipeline_write",
                                    "zero_optimization.offload_optimizer.ratio",
                                    "zero_optimization.offload_param.buffer_count",
                                    "zero_optimization.offload_param.buffer_size",
                                    "zero_optimization.offload_param.max_in_cpu",
                                    "zero_optimization.offload_param.pin_memory",
                                    "zero_optimization.overlap_comm",
                                    "zero_optimization.reduce_bucket_size",
                                    "zero_optimization.reduce_scatter",
                                    "zero_optimization.round_robin_gradients",
                                    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
                                    "zero_optimization.stage3_max_live_parameters",
                                    "zero_optimization.stage3_max_reuse_distance",
                                    "zero_optimization.stage3_param_persistence_threshold",
                                    "zero_optimization.stage3_prefetch_bucket_size",
                                    "zero_optimization.sub_group_size"};
  // {"a": {"b": 7}} of a.b, and {"a": {"any": 7}} of all below a.
  const auto file_of = [](const std::string& path) {
    std::string json = "{\"", end = "\": 7}";
    for (const char c : path.ends_with('.') ? path + "any" : path) {
      if (c == '.') end += '}';
      json += c == '.' ? "\": {\"" : std::string(1, c);
    }
    return json + end;
  };
  REQUIRE(file_of("a.b.") == R"({"a": {"b": {"any": 7}}})");
  const std::string plain = io::to_text(to_json(shop.applied("{}"), ~0u));
  for (const std::string_view name : names) {
    std::string path(name), other = path;
    CAPTURE(path);
    CHECK(io::to_text(to_json(shop.applied(file_of(path)), ~0u)) == plain);
    other.insert(path.ends_with('.') ? path.size() - 1 : path.size(), "x");
    CHECK(shop.refusal(file_of(other)) ==
          concat(other, other.ends_with('.') ? "any" : "",
                 " 7, which is not understood; remove it if it changes nothing that is trained"));
  }
}

TEST_CASE("deepspeed: what computes the same under any of its names is taken, and nothing else of these fields") {
  const Shop shop;
  const std::string plain = io::to_text(to_json(shop.applied("{}"), ~0u));
  for (const std::string_view json :
       {R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})",
        R"({"optimizer": {"type": "Adam", "params": {"lr": "auto"}}})",
        R"({"optimizer": {"type": "adamw", "params": {"lr": "auto"}}})",
        R"({"optimizer": {"type": "adam", "params": {"lr": "auto"}}})",
        R"({"optimizer": {"params": {"adam_w_mode": true, "bias_correction": true, "betas": ["auto", "auto"]}}})",
        R"({"fp16": {"loss_scale": 0}})", R"({"fp16": {"loss_scale": 0.0}})", R"({"prescale_gradients": false})",
        R"({"sparse_gradients": false})", R"({"communication_data_type": "fp32"})",
        R"({"gradient_predivide_factor": 1})", R"({"gradient_predivide_factor": 1.0})",
        R"({"scheduler": {"params": {"warmup_min_lr": 0, "total_num_steps": -1}}})",
        R"({"scheduler": {"params": {"warmup_min_lr": 0.0, "total_num_steps": "auto"}}})",
        R"({"zero_optimization": {"cpu_offload": false}})", "// of the run\n{/* nothing */}"}) {
    const std::string text(json);
    CAPTURE(text);
    Config config = shop.applied(json);
    CHECK(io::to_text(to_json(config, ~0u)) == plain);
  }
  CHECK(shop.refusal(R"({"optimizer": {"params": {"bias_correction": false}}})") ==
        "optimizer.params.bias_correction false, which has no counterpart; allowed: true or auto");
  CHECK(shop.refusal(R"({"optimizer": {"params": {"adam_w_mode": false}}})") ==
        "optimizer.params.adam_w_mode false, which has no counterpart; allowed: true or auto");
  CHECK(shop.refusal(R"({"communication_data_type": "fp16"})") ==
        "communication_data_type \"fp16\", which has no counterpart; allowed: fp32 or auto");
  CHECK(shop.refusal(R"({"gradient_predivide_factor": 2})") ==
        "gradient_predivide_factor 2, which has no counterpart; allowed: 1.0 or auto");
  CHECK(shop.refusal(R"({"scheduler": {"params": {"warmup_min_lr": 1}}})") ==
        "scheduler.params.warmup_min_lr 1, which has no counterpart; allowed: 0 or auto");
  for (const char* betas : {"0.9", "[0.9]", "[0.9, 0.9, 0.9]", "{\"0\": 1, \"1\": 2}"})
    CHECK(shop.refusal(concat(R"({"optimizer": {"params": {"betas": )", betas, "}}}"))
              .starts_with("optimizer.params.betas"));
  CHECK(shop.applied(R"({"optimizer": {"params": {"betas": [0.7, "auto"]}}})").adam_beta1 == 0.7);
  CHECK(shop.applied(R"({"optimizer": {"params": {"betas": [0.7, "auto"]}}})").adam_beta2 == 0.999);
  CHECK(shop.refusal(R"({"zero_optimization": {"cpu_offload": 1}})") ==
        "zero_optimization.cpu_offload 1, expected true, false or auto");
  CHECK(shop.refusal(R"({"zero_optimization": {"offload_optimizer": {"device": true}}})") ==
        "zero_optimization.offload_optimizer.device true, which has no counterpart; allowed: none or cpu");
}

TEST_CASE("deepspeed: a schedule with warm-up steps of the run's own, and a number of steps that is the run's") {
  const Shop shop;
  Config config;
  config.warmup_steps = 5;
  config.max_steps = 100;
  const std::string_view linear = R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear")";
  for (const char* rest : {"}}}", ", \"warmup_num_steps\": \"auto\"}}}", ", \"total_num_steps\": 100}}}"}) {
    CAPTURE(rest);
    const Config found = shop.applied(concat(linear, rest), config);
    CHECK(found.lr_scheduler_type == "constant");
    CHECK(found.warmup_steps == 5);
  }
  CHECK(shop.refusal(R"({"scheduler": {"params": {"total_num_steps": 99}}})", config) ==
        "scheduler.params.total_num_steps 99, which the run's number of steps decides; allowed: auto, or the same as "
        "max_steps");
  CHECK(shop.refusal(R"({"scheduler": {"type": "WarmupCosineLR"}})") ==
        "scheduler.type \"WarmupCosineLR\", which has no counterpart; allowed: WarmupDecayLR or WarmupLR, or "
        "lr_scheduler_type as a key");
  CHECK(
      shop.refusal(R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_type": "log"}}})") ==
      "scheduler.type \"WarmupDecayLR\", which warms up by a logarithm of the step; allowed: with warmup_type linear, "
      "or lr_scheduler_type and warmup_steps as keys");
  CHECK(shop.applied(R"({"scheduler": {"params": {"warmup_max_lr": 0.5}}})").learning_rate == 0.5);
}

TEST_CASE("deepspeed: where a key differs from what parts of the file come to, the part that decides is named") {
  const Shop shop;
  const auto told = [&](const char* key, const char* given, std::string_view json) {
    Config config;
    set_from_text(config, *find_key(key), given);
    const std::string text = shop.refusal(json, config),
                      begin =
                          concat("key ", key, ": given \"", given, "\", but ", std::string_view(shop.file), " has "),
                      end = "; allowed: the same, or \"auto\" in the file, which is the key's";
    if (!text.starts_with(begin) || !text.ends_with(end)) return text;
    return text.substr(begin.size(), text.size() - begin.size() - end.size());
  };
  CHECK(told("dtype", "float32", R"({"bf16": {"enabled": false}, "fp16": {"enabled": true}})") == "fp16.enabled true");
  CHECK(told("dtype", "float32", R"({"fp16": {"enabled": false}, "bf16": {"enabled": true}})") == "bf16.enabled true");
  CHECK(told("dtype", "float16", R"({"fp16": {"enabled": false}, "bf16": {"enabled": false}})") ==
        "fp16.enabled false");
  CHECK(told("offload", "all", R"({"zero_optimization": {"offload_optimizer": {"device": "none"}}})") ==
        "zero_optimization.offload_optimizer.device \"none\"");
  CHECK(told("offload", "optimizer", R"({"zero_optimization": {"offload_param": {"device": "cpu"}}})") ==
        "zero_optimization.offload_param.device \"cpu\"");
  CHECK(told("offload", "params", R"({"zero_optimization": {"cpu_offload": true}})") ==
        "zero_optimization.cpu_offload true");
  CHECK(told("offload", "optimizer", R"({"zero_optimization": {"cpu_offload": false}})") ==
        "zero_optimization.cpu_offload false");
  CHECK(
      told("offload", "none", R"({"zero_optimization": {"cpu_offload": true, "offload_param": {"device": "none"}}})") ==
      "zero_optimization.offload_param.device \"none\"");
  CHECK(told("lr_scheduler_type", "cosine",
             R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_num_steps": 1}}})") ==
        "scheduler.type \"WarmupLR\"");
  CHECK(test::message_of<ConfigError>([&] {
          (void)shop.applied(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})");
        }) == "key deepspeed: " + shop.file + " enables fp16 and bf16; allowed: one of the two");
  CHECK(shop.refusal(R"({"bf16": {"enabled": "yes"}})") == "bf16.enabled \"yes\", expected true, false or auto");
}

}  // namespace deepspeed_test
