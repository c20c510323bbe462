// lora plan: what it prints, when it says no, and that the memory it tells is what training takes.

#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/io/formats/json.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace plan_test {

using namespace lora;

namespace {

using Words = std::vector<std::string>;

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

test::Outcome plan(const Words& words) { return test::run_program(LORA_PROGRAM, with({"plan"}, words)); }

io::Json json_of(const Words& words, int status = 0) {
  const test::Outcome outcome = plan(with(words, {"--json"}));
  CAPTURE(outcome.errors);
  CHECK(outcome.status == status);
  return io::parse_json(outcome.output, "the plan");
}

/// Whether plans are made for what another one, which takes seconds under a sanitizer, is made for as well.
bool made_again() {
  return test::effort(true, false, "plan: all ways of training, and the processors measured, more than once");
}

}  // namespace

TEST_CASE("plan: the memory that it tells is within a tenth of what training takes") {
  // Of which sanitizers and emulators take a share.
  if (!test::effort(true, false, "plan: the memory that is told beside what training takes")) return;
  const test::TempFolder temp;
  test::write_random_model(temp / "model", {.family = "qwen2",
                                            .vocabulary = 1000,
                                            .hidden = 128,
                                            .ffn = 512,
                                            .layers = 4,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .head_dim = 32});
  std::string lines;
  for (int i = 0; i < 8; ++i) {
    std::vector<int> ids;
    for (int j = 0; j < 120 + i; ++j) ids.push_back((7 * i + j * j) % 1000);
    lines += io::to_text(io::json_object({{"input_ids", ids}, {"labels", ids}}), -1) + "\n";
  }
  io::write_file(temp / "data.jsonl", std::string_view(lines));
  const Words keys = {"--model_name_or_path=" + (temp / "model").native(),
                      "--dataset=" + (temp / "data.jsonl").native(),
                      "--per_device_train_batch_size=8",
                      "--gradient_accumulation_steps=1",
                      "--max_steps=1",
                      "--dtype=float32",
                      "--threads=1"};
  for (const Words& more : {Words{}, Words{"--finetuning_type=full"},
                            Words{"--gradient_checkpointing", "--lora_rank=32", "--max_tokens_per_micro_batch=700"}}) {
    CAPTURE(more.size());
    const io::Json json = json_of(with(keys, more));
    const double told = json.at("ranks")[0].at("device_gib").at("total").get<double>();
    const io::Path run = temp / "run";
    const auto trained = test::run_program(
        LORA_PROGRAM,
        with({"train", "--output_dir=" + run.native(), "--overwrite_output_dir", "--save_steps=0"}, with(keys, more)));
    CAPTURE(trained.errors);
    REQUIRE(trained.status == 0);
    const double peak = io::read_json(run / "training_metrics.json").at("peak_memory_gib").get<double>();
    CHECK(told == doctest::Approx(peak).epsilon(0.1));
    CHECK(json.at("step").at("sequences") == 8);
  }
}

TEST_CASE("plan: published shapes on an NPU are known without any file, and what does not fit is said with exit 1") {
  const Words seven = {"--model_preset=qwen2.5-7b", "--device_type=ascend910b3", "--lora_rank=64"};
  const test::Outcome page = plan(seven);
  CHECK(page.status == 0);
  CHECK(
      page.output.starts_with("model    qwen2.5-7b, 7.62 billion parameters stored as BF16; LoRA, 161 million train\n"
                              "device   ascend910b3, from its data sheet: nothing of it was measured; computing in "
                              "bfloat16\n"));
  for (const char* line : {"\nstep     8 sequences of 2048 tokens, 16,384 tokens in 8 micro-batches; 502 TFLOP\n",
                           "\n         weights            14.19\n", "\nfits     yes, in 61.0 GiB\n"})
    CHECK(page.output.find(line) != std::string::npos);
  CHECK(page.errors == "");
  const test::Outcome small = plan(with(seven, {"--device_memory_gib=16"}));
  CHECK(small.status == 1);
  CHECK(small.output.find("\nfits     no: it needs 23.5 GiB, but the device has 16.0 GiB\n") != std::string::npos);
  const io::Json json = json_of(with(seven, {"--device_memory_gib=16"}), 1);
  CHECK(json.at("fits") == false);
  CHECK(json.at("advice")[0] == "it needs 23.5 GiB, but the device has 16.0 GiB");
  if (made_again()) {
    const test::Outcome all = plan(with(seven, {"--device_memory_gib=20", "--all"}));
    CHECK(all.status == 0);
    CHECK(all.output.find("\nthe fastest that fits: ") != std::string::npos);
  }
  const test::Outcome none = plan(with(seven, {"--device_memory_gib=2", "--all"}));
  CHECK(none.status == 1);
  CHECK(none.output.find("\nnone fits; the one that needs least, ") != std::string::npos);
  const Words host = {"--model_preset=qwen2.5-7b", "--device_type=ascend910b1", "--offload=params",
                      "--host_memory_gib=3"};
  CHECK(plan(host).output.find("of the host's memory, which has 3.0 GiB") != std::string::npos);
}

TEST_CASE("plan: of several NPUs it tells what each has and what they send, and sharing out takes less of each") {
  const Words seven = {"--model_preset=qwen2.5-7b", "--device_type=ascend910b3", "--lora_rank=64"};
  const Words eight = with(seven, {"--devices=8"});
  double before = 1e9;
  for (const char* stage : {"0", "1", "2", "3"}) {
    CAPTURE(stage);
    const io::Json json = json_of(with(eight, {std::string("--zero_stage=") + stage}));
    REQUIRE(json.at("ranks").size() == 8);
    const double total = json.at("ranks")[7].at("device_gib").at("total").get<double>();
    CHECK(total < before);
    before = total;
    CHECK(json.at("ranks")[0].at("device_gib").at("communication") == 0.4077);  // with scratch of 9 x 4 MiB
    CHECK(json.at("step").at("sequences") == 64);
    CHECK(json.at("step").at("communication_seconds") > 0);
    CHECK(json.at("communication")[0].at("what") == (stage[0] == '3' ? "layers" : "gradients"));
    for (const io::Json& one : json.at("communication")) CHECK(one.at("bytes_per_step") > 0);
  }
  const auto seconds = [&](const Words& words) { return json_of(words).at("step").at("seconds").get<double>(); };
  CHECK(seconds(with(seven, {"--devices=8", "--nodes=2", "--zero_stage=3"})) >
        seconds(with(eight, {"--zero_stage=3"})));
  CHECK(plan(with(seven, {"--devices=8", "--nodes=2", "--zero_stage=2"}))
            .output.find("\nranks    16 on 2 nodes: 16 x 1 x 8 = 128 sequences a step, zero_stage 2\n") !=
        std::string::npos);
  // One alone takes what its part of the step takes, but for the exchange.
  const io::Json one = json_of(seven).at("step"), many = json_of(eight).at("step");
  CHECK(many.at("seconds").get<double>() - many.at("communication_seconds").get<double>() ==
        doctest::Approx(one.at("seconds").get<double>()).epsilon(1e-6));
  CHECK(json_of(seven).at("communication").empty());
  if (made_again()) {
    const test::Outcome all = plan(with(eight, {"--all", "--device_memory_gib=14"}));
    CHECK(all.status == 0);
    CHECK(all.output.find(" --zero_stage 3\n") != std::string::npos);
  }
  // All processes of a host have their parts in its memory.
  const Words host = with(eight, {"--offload=params", "--host_memory_gib=64"});
  CHECK(json_of(with(seven, {"--offload=params", "--host_memory_gib=64"})).at("fits") == true);
  const io::Json short_of_it = json_of(host, 1);
  CHECK(short_of_it.at("fits") == false);
  CHECK(short_of_it.at("advice")[0].get<std::string>().ends_with(" of the host's memory, which has 64.0 GiB"));
  CHECK(json_of(with(host, {"--zero_stage=3"})).at("fits") == true);
  CHECK(json_of(with(eight, {"--zero_stage=2", "--step_units=64"})).at("step").at("sequences") == 64);
  CHECK(plan(with(eight, {"--step_units=4"})).errors.find("key step_units: given 4, but 8 processes need one each") !=
        std::string::npos);
  CHECK(plan(with(seven, {"--zero_stage=3"})).errors.find("a single process has nobody to share layers with") !=
        std::string::npos);
  CHECK(
      plan({"--model_preset=qwen2.5-0.5b", "--nodes=2"}).errors.find("of the network between hosts nothing is known") !=
      std::string::npos);
  if (made_again())
    CHECK(plan({"--model_preset=qwen2.5-0.5b", "--devices=2", "--cutoff_len=64"})
              .output.find("of each of 2 ranks of a node, which share the weights' pages\n") != std::string::npos);
}

TEST_CASE("plan: whole pages, of whose numbers each comes from a data sheet and the keys alone") {
  const Words seven = {"--model_preset=qwen2.5-7b", "--device_type=ascend910b3", "--lora_rank=64"},
              half = {"--model_preset=qwen2.5-0.5b", "--device_type=ascend910b1"};
  const std::pair<Words, const char*> pages[] = {
      {with(seven, {"--devices=8", "--gradient_checkpointing"}),
       R"(model    qwen2.5-7b, 7.62 billion parameters stored as BF16; LoRA, 161 million train
device   ascend910b3, from its data sheet: nothing of it was measured; computing in bfloat16
ranks    8 on 1 node: 8 x 1 x 8 = 64 sequences a step
step     64 sequences of 2048 tokens, 131,072 tokens in 64 micro-batches; 5271 TFLOP
time     about 3.56 s a step, 36,853 tokens/s; most of it goes to products
links    about 0.0108 s of it; a rank sends gradients 0.53 GiB, summed gradients 0.53 GiB
memory                GiB  device     host
         weights            14.19
         what trains         2.71
         saved               1.04
         workspace           1.40
         communication       0.41
         in all             19.73
         of each of 8 ranks of a node
         with gradient checkpointing on 28 of 28 layers
fits     yes, in 61.0 GiB
)"},
      {with(seven, {"--devices=8", "--nodes=2", "--zero_stage=3", "--offload=all", "--host_memory_gib=64"}),
       R"(model    qwen2.5-7b, 7.62 billion parameters stored as BF16; LoRA, 161 million train
device   ascend910b3, from its data sheet: nothing of it was measured; computing in bfloat16
ranks    16 on 2 nodes: 16 x 1 x 8 = 128 sequences a step, zero_stage 3
step     128 sequences of 2048 tokens, 262,144 tokens in 128 micro-batches; 8036 TFLOP
time     about 6.1 s a step, 42,992 tokens/s; most of it goes to exchanges between ranks
links    about 3.4 s of it, and 2.7 s beside the work; a rank sends layers 169.29 GiB, gradients 4.35 GiB
memory                GiB  device     host
         weights             2.90     0.76
         what trains         0.98     0.13
         saved               5.83
         workspace           1.04
         communication       0.44
         in all             11.19     1.19
         of each of 8 ranks of a node
fits     yes, in 61.0 GiB
)"},
      {with(seven, {"--offload=params", "--device_memory_gib=25"}),
       R"(model    qwen2.5-7b, 7.62 billion parameters stored as BF16; LoRA, 161 million train
device   ascend910b3, from its data sheet: nothing of it was measured; computing in bfloat16
ranks    1, which holds all of it
step     8 sequences of 2048 tokens, 16,384 tokens in 8 micro-batches; 502 TFLOP
time     about 2.71 s a step, 6,056 tokens/s; most of it goes to products
memory                GiB  device     host
         weights            13.32    12.15
         what trains         2.71
         saved               5.83
         workspace           0.79
         in all             22.65    12.15
fits     yes, in 25.0 GiB
)"},
      {with(half, {"--memory_limit_gib=0.01"}),
       R"(model    qwen2.5-0.5b, 494 million parameters stored as BF16; LoRA, 4.4 million train
device   ascend910b1, from its data sheet: nothing of it was measured; computing in bfloat16
ranks    1, which holds all of it
step     8 sequences of 2048 tokens, 16,384 tokens in 8 micro-batches; 46.3 TFLOP
time     about 0.267 s a step, 61,376 tokens/s; most of it goes to products
fits     no: key memory_limit_gib: given 0.01, but with every layer checkpointed 1.99 GiB are expected; allowed: more, or a smaller max_tokens_per_micro_batch or cutoff_len
)"},
      {with(half, {"--memory_limit_gib=2.5", "--cutoff_len=4096"}),
       R"(model    qwen2.5-0.5b, 494 million parameters stored as BF16; LoRA, 4.4 million train
device   ascend910b1, from its data sheet: nothing of it was measured; computing in bfloat16
ranks    1, which holds all of it
step     8 sequences of 4096 tokens, 32,768 tokens in 8 micro-batches; 101 TFLOP
time     about 0.561 s a step, 58,438 tokens/s; most of it goes to products
memory                GiB  device     host
         weights             0.92
         what trains         0.07
         saved               0.68
         workspace           0.76
         in all              2.43
         with gradient checkpointing on 21 of 24 layers
fits     yes, in 61.0 GiB
)"},
  };
  for (const auto& page : pages) {
    const test::Outcome outcome = plan(page.first);
    CHECK(outcome.output == page.second);
    CHECK(outcome.errors == "");
  }
  const io::Json sixteen =
      json_of(with(seven, {"--devices=8", "--nodes=2", "--zero_stage=3", "--offload=all", "--host_memory_gib=64"}));
  CHECK(
      io::to_text(sixteen.at("communication"), -1) ==
      R"([{"what":"layers","collective":"all-gather","calls_per_step":2912.0,"bytes_per_step":181775892480.0},{"what":"gradients","collective":"all-to-all","calls_per_step":216.0,"bytes_per_step":4671406080.0},{"what":"last gradients","collective":"all-to-all","calls_per_step":8.0,"bytes_per_step":173015040.0},{"what":"norm","collective":"all-gather","calls_per_step":28.0,"bytes_per_step":591360.0},{"what":"values","collective":"all-gather","calls_per_step":28.0,"bytes_per_step":605552640.0},{"what":"counts and losses","collective":"all-gather","calls_per_step":4.0,"bytes_per_step":2280.0}])");
  CHECK(
      io::to_text(sixteen.at("ranks")[15], -1) ==
      R"({"rank":15,"device_gib":{"weights":2.8997,"trained":0.9829,"saved":5.8315,"workspace":1.0406,"communication":0.4389,"total":11.1936},"host_gib":{"weights":0.7596,"optimizer":0.1329,"total":1.1937},"checkpointed_layers":0})");
}

TEST_CASE("plan: whole tables of ways, which differ in what of a rank's share and the host's there is room for") {
  if (!made_again()) return;
  const Words half = {"--model_preset=qwen2.5-0.5b", "--device_type=ascend910b1"};
  const std::pair<Words, const char*> tables[] = {
      {with(half, {"--devices=2", "--all", "--device_memory_gib=6", "--cutoff_len=3000"}),
       R"(model    qwen2.5-0.5b, 494 million parameters stored as BF16; LoRA, 4.4 million train
device   ascend910b1, from its data sheet: nothing of it was measured; computing in bfloat16

tokens a micro-batch  gradient_checkpointing  offload    zero_stage      s a step    tokens/s       GiB  fits
512                   false                   none       0                  0.331     144,881      4.03   yes
8,192                 false                   none       0                  0.331     144,881      5.94   yes
16,384                false                   none       0                  0.331     144,881     11.68    no
16,384                false                   none       1                  0.331     144,913     11.67    no
12,000                false                   none       2                  0.333     144,107      9.74    no
12,000                false                   none       3                  0.333     144,107      9.46    no
16,384                false                   optimizer  0                  0.331     144,881     11.65    no
16,384                false                   optimizer  1                  0.331     144,913     11.65    no
12,000                false                   optimizer  2                  0.333     144,107      9.72    no
12,000                false                   optimizer  3                  0.333     144,107      9.45    no
16,384                false                   params     0                  0.331     144,881     11.07    no
16,384                false                   params     1                  0.331     144,913     11.06    no
12,000                false                   params     2                  0.333     144,107      9.13    no
12,000                false                   params     3                  0.333     144,107      9.13    no
16,384                false                   all        0                  0.331     144,881     11.04    no
16,384                false                   all        1                  0.331     144,913     11.04    no
12,000                false                   all        2                  0.333     144,107      9.11    no
12,000                false                   all        3                  0.333     144,107      9.11    no
512                   true                    none       0                  0.406     118,284      2.51   yes
8,192                 true                    none       0                  0.406     118,284      2.90   yes
16,384                true                    none       0                  0.406     118,284      4.08   yes

the fastest that fits: --max_tokens_per_micro_batch 512
)"},
      {with(half, {"--finetuning_type=full", "--all", "--device_memory_gib=3", "--cutoff_len=3000"}),
       R"(model    qwen2.5-0.5b, 494 million parameters stored as BF16; in full, 494 million train
device   ascend910b1, from its data sheet: nothing of it was measured; computing in bfloat16

tokens a micro-batch  gradient_checkpointing  offload        s a step    tokens/s       GiB  fits
512                   false                   none              0.416      57,664     10.91    no
512                   false                   optimizer         0.416      57,664      7.23    no
512                   false                   all               0.682      35,200      4.79    no
8,192                 false                   none              0.416      57,664     12.82    no
8,192                 false                   optimizer         0.416      57,664      9.14    no
8,192                 false                   all               0.416      57,664      6.69    no
16,384                false                   none              0.416      57,664     18.53    no
16,384                false                   optimizer         0.416      57,664     14.85    no
16,384                false                   all               0.416      57,664     12.40    no
512                   true                    none               0.47      51,083      9.40    no
512                   true                    optimizer          0.47      51,083      5.72    no
512                   true                    all               0.682      35,200      3.28    no
8,192                 true                    none               0.47      51,083      9.79    no
8,192                 true                    optimizer          0.47      51,083      6.11    no
8,192                 true                    all                0.47      51,083      3.66    no
16,384                true                    none               0.47      51,083     10.96    no
16,384                true                    optimizer          0.47      51,083      7.28    no
16,384                true                    all                0.47      51,083      4.83    no

none fits; the one that needs least, --max_tokens_per_micro_batch 512 --gradient_checkpointing --offload all: it needs 3.3 GiB, but the device has 3.0 GiB
)"},
  };
  for (const auto& table : tables) CHECK(plan(table.first).output == table.second);
}

TEST_CASE("plan: of records it tells their own tokens, and of units that are given fewer than the ranks it says no") {
  const test::TempFolder temp;
  test::write_random_model(temp / "model", {});
  io::write_file(temp / "data.jsonl", std::string_view("{\"input_ids\": [5, 6, 7], \"labels\": [5, 6, 7]}\n"
                                                       "{\"input_ids\": [8, 9], \"labels\": [8, 9]}\n"));
  const Words keys = {"--model_name_or_path=" + (temp / "model").native(), "--device_type=ascend910b3"},
              data = {"--dataset=" + (temp / "data.jsonl").native(), "--gradient_accumulation_steps=2"};
  const test::Outcome page = plan(with(keys, data));
  CHECK(page.status == 0);
  CHECK(page.output.find("\nstep     2 sequences, 5 tokens in 1 micro-batch; ") != std::string::npos);
  CHECK(plan(with(keys, {"--cutoff_len=7"})).output.find("\nstep     8 sequences of 7 tokens, 56 tokens in ") !=
        std::string::npos);
  const auto refused = [&](const Words& more, const std::string& units) {
    const test::Outcome outcome = plan(with(with(keys, {"--devices=4"}), more));
    CHECK(outcome.status == 2);
    CHECK(outcome.output == "");
    CHECK(outcome.errors ==
          "error: key step_units: given " + units + ", but 4 processes need one each; allowed: that many, or more\n");
  };
  refused({"--step_units=1"}, "1");
  refused({"--step_units=3"}, "3");
  refused(with(data, {"--step_units=3"}), "3");
  // Of ways with units it is the longest record that says how many sequences a micro-batch has.
  const io::Json ways =
      json_of(with(with(keys, data), {"--devices=2", "--all", "--device_memory_gib=0.01"}), 1).at("strategies");
  REQUIRE(ways.size() == 32);
  for (const io::Json& way : ways)
    if (way.at("zero_stage") > 1) CHECK(way.at("per_device_train_batch_size") == 2);
  CHECK(plan(with(keys, {"--devices=4", "--step_units=4"})).status == 0);
  CHECK(plan(with(keys, {"--devices=4"})).status == 0);
}

TEST_CASE("plan: what it is given is refused as train refuses it") {
  const auto told = [](const Words& words) {
    const test::Outcome outcome = plan(words);
    CHECK(outcome.output == "");
    CHECK(outcome.status == 2);
    return outcome.errors;
  };
  CHECK(told({}).starts_with("error: key model_name_or_path: given nothing"));
  CHECK(told({"--model_preset=tiny", "--device_type=ascend310"}) ==
        "error: key device_type: given ascend310, of which no forecast is made; allowed: ascend910b1, ascend910b3\n");
  CHECK(told({"--model_preset=tiny", "--lora_rank=0"}).starts_with("error: key lora_rank: given 0"));
  CHECK(told({"--model_preset=tiny", "--preview=1"}).find("unknown key") != std::string::npos);
}

TEST_CASE("plan: the type that is computed in is that of the weights, or the key's") {
  const auto device = [](const Words& more) {
    return json_of(with({"--model_preset=qwen3-0.6b", "--device_type=ascend910b1"}, more)).at("device");
  };
  const std::string begin = "ascend910b1, from its data sheet: nothing of it was measured; computing in ";
  CHECK(device({}) == begin + "bfloat16");
  CHECK(device({"--dtype=float32"}) == begin + "float32");
  CHECK(device({"--dtype=float16"}) == begin + "float16");
  CHECK(device({"--train_from_scratch", "--finetuning_type=full"}) == begin + "float32");
  const test::TempFolder temp;
  for (const auto& one :
       {std::pair("float16", "float16"), std::pair("bfloat16", "bfloat16"), std::pair("float32", "float32")}) {
    test::RandomModel shape;
    shape.more = {{"torch_dtype", one.first}};
    io::write_json(temp / "config.json", test::config_json(shape));
    CHECK(json_of({"--model_name_or_path=" + temp.path().native(), "--device_type=ascend910b3"}).at("device") ==
          concat("ascend910b3, from its data sheet: nothing of it was measured; computing in ", one.second));
  }
}

TEST_CASE("plan: sequences that the model can't compute are refused, and those it was not made for are told") {
  const test::TempFolder temp;
  const auto planned = [&](const io::Json& more, const char* cutoff) {
    const test::RandomModel shape{.family = "phi3", .more = more};
    std::filesystem::remove_all(temp / "model");
    test::write_random_model(temp / "model", shape);
    return plan({"--model_name_or_path=" + (temp / "model").native(), "--device_type=ascend910b3", cutoff});
  };
  io::Json more = {{"max_position_embeddings", 64}};
  CHECK(planned(more, "--cutoff_len=64").errors.empty());
  CHECK(test::holds(planned(more, "--cutoff_len=65").errors,
                    "Warning: key cutoff_len: given 65 tokens, but the model was made for 64"));
  more["original_max_position_embeddings"] = 32;
  more["rope_scaling"] = {{"type", "longrope"}, {"short_factor", {1, 1.5}}, {"long_factor", {2, 4}}};
  CHECK(planned(more, "--cutoff_len=32").status == 0);
  const auto refused = planned(more, "--cutoff_len=33");
  CHECK(refused.status == 2);
  CHECK(test::holds(refused.errors, "key cutoff_len: given 33 tokens, but beyond 32 the model's longrope scaling"));
}

TEST_CASE("plan: what trains is told in millions or billions, in full or as an adapter") {
  const auto model = [](const Words& more) {
    return json_of(with({"--model_preset=qwen2.5-7b", "--device_type=ascend910b3", "--device_memory_gib=9999"}, more))
        .at("model");
  };
  const std::string begin = "qwen2.5-7b, 7.62 billion parameters stored as ";
  CHECK(model({"--lora_rank=64"}) == begin + "BF16; LoRA, 161 million train");
  // Of 28 layers A (1, 3584) and B (3584, 1).
  CHECK(model({"--lora_rank=1", "--lora_target=q_proj"}) == begin + "BF16; LoRA, 0.201 million train");
  CHECK(model({"--finetuning_type=full"}) == begin + "BF16; in full, 7.62 billion train");
}

TEST_CASE("plan: layers that stream lie on the host, come twice a micro-batch, and stay where there is room") {
  // Of 28 layers, the projections of one in bfloat16.
  constexpr double hidden = 3584, kv = 512, ffn = 18944;
  constexpr double layer = 2 * (2 * hidden * hidden + 2 * kv * hidden + 3 * ffn * hidden);
  const Words npu = {"--model_preset=qwen2.5-7b", "--device_type=ascend910b3", "--lora_rank=64"},
              keys = with(npu, {"--host_memory_gib=64"});
  const auto gib_of = [](const io::Json& json, const char* where, const char* part) {
    return json.at("ranks")[0].at(where).at(part).get<double>() * 0x1p30;
  };
  const io::Json plain = json_of(keys);
  CHECK(gib_of(plain, "host_gib", "total") == 0);
  const double whole = gib_of(plain, "device_gib", "weights");
  const auto check = [&](const char* memory, double slots) {
    const io::Json json =
        json_of(with(keys, {"--offload=params", concat("--device_memory_gib=", memory)}), slots == 2 ? 1 : 0);
    CAPTURE(memory);
    CHECK(gib_of(json, "host_gib", "weights") == doctest::Approx(28 * layer).epsilon(1e-5));
    CHECK(gib_of(json, "host_gib", "optimizer") == 0);
    CHECK(gib_of(json, "device_gib", "weights") == doctest::Approx(whole - (28 - slots) * layer).epsilon(1e-4));
    const io::Json& step = json.at("step");
    const double link = 2 * 8 * (28 - slots) * layer / 20e9, work = plain.at("step").at("seconds");
    CHECK(step.at("seconds").get<double>() == doctest::Approx(std::max(link, work)).epsilon(1e-5));
    CHECK(step.at("limited_by") == (link > work ? "the host's link" : "products"));
  };
  check("12", 2);  // less than it needs
  check("61", 28);
  const io::Json all = json_of(with(keys, {"--offload=all"}));
  // The adapter's numbers in float32: gradients, and on the host values and two moments.
  CHECK(gib_of(all, "host_gib", "total") ==
        doctest::Approx(gib_of(all, "host_gib", "weights") + gib_of(all, "host_gib", "optimizer")).epsilon(1e-4));
  CHECK(gib_of(all, "host_gib", "optimizer") > 2 * 4 * 161e6);
  CHECK(gib_of(all, "device_gib", "trained") < gib_of(plain, "device_gib", "trained"));
  CHECK(json_of(with(npu, {"--offload=params", "--host_memory_gib=12"}), 1).at("advice")[0] ==
        "it needs 12.2 GiB of the host's memory, which has 12.0 GiB");
}

TEST_CASE("plan: ways are told with what stays on the host where not all fits, and exit with 1 where none does") {
  const Words npu = {"--model_preset=qwen2.5-7b", "--device_type=ascend910b3", "--host_memory_gib=64", "--all"},
              keys = with(npu, {"--lora_rank=64"});
  if (made_again()) {
    const io::Json roomy = json_of(with(keys, {"--device_memory_gib=200"}));
    for (const io::Json& way : roomy.at("strategies")) CHECK(way.at("offload") == "none");
  }
  const io::Json tight = json_of(with(keys, {"--device_memory_gib=20"}));
  std::vector<std::string> offloads;
  for (const io::Json& way : tight.at("strategies"))
    if (way.at("max_tokens_per_micro_batch") == 16384 && way.at("gradient_checkpointing") == false)
      offloads.push_back(way.at("offload"));
  CHECK(offloads == std::vector<std::string>{"none", "optimizer", "params", "all"});
  CHECK(json_of(with(keys, {"--device_memory_gib=1"}), 1).at("strategies").size() > 8);
  if (!made_again()) return;
  const io::Json full = json_of(with(npu, {"--device_memory_gib=1", "--finetuning_type=full"}), 1);
  for (const io::Json& way : full.at("strategies")) CHECK(way.at("offload") != "params");
}

TEST_CASE(
    "plan: of the processors it tells what was measured of them, has the host's memory alone, and writes nothing") {
  const test::TempFolder temp;
  test::write_random_model(temp / "model", {});
  const auto before = io::entries_of(temp / "model");
  const Words keys = {"--model_name_or_path=" + (temp / "model").native(), "--output_dir=" + (temp / "run").native(),
                      "--threads=1", "--cutoff_len=32", "--dtype=float32"};
  if (made_again()) CHECK(plan(keys).status == 0);
  const io::Json json = json_of(with(keys, {"--host_memory_gib=0.001"}), 1);
  CHECK_FALSE(io::is_there(temp / "run"));
  CHECK(io::entries_of(temp / "model") == before);
  const std::regex device(R"(cpu, 1 thread.*, [0-9.e+]+ GFLOP/s in float32, [0-9.e+]+ in bfloat16, [0-9.e+]+ GB/s; )"
                          R"(computing in float32)");
  CHECK(std::regex_match(json.at("device").get<std::string>(), device));
  CHECK(json.at("ranks")[0].at("host_gib").at("total") == 0);
  CHECK(json.at("step").at("sequences") == 8);
  CHECK(json.at("step").at("tokens") == 8 * 32);
  // What the program holds itself is part of it.
  CHECK(json.at("ranks")[0].at("device_gib").at("total").get<double>() > 0.005);
  CHECK(json.at("fits") == false);
  CHECK(json.at("advice")[0].get<std::string>().ends_with(", but the device has 0.0 GiB"));
}

}  // namespace plan_test
