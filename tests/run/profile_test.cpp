#include "lora/run/profile.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "lora/instantiate.hpp"
#include "lora/run/memory_use.hpp"
#include "lora/trainer.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace profile_test {

using namespace lora;

namespace {

constexpr Index length = 9, sequences = 2, rank = 2;

struct Workshop {
  test::TempFolder temp;
  test::RandomModel shape;

  Workshop() {
    shape.dtype = DType::bf16;  // under float32: weights are decoded
    test::write_random_model(temp / "model", shape);
    std::string text;
    Random random(3);
    for (int i = 0; i < 12; ++i) {
      std::vector<std::int32_t> ids;
      for (Index j = 0; j < length; ++j) ids.push_back(static_cast<std::int32_t>(random.below(61)));
      text += io::to_text(io::Json{{"input_ids", ids}, {"labels", ids}}, -1) + "\n";
    }
    io::write_file(temp / "train.jsonl", std::string_view(text));
  }

  Config config(const std::string& output, bool profile) const {
    Config config;
    config.model_name_or_path = (temp / "model").native();
    config.dataset = {(temp / "train.jsonl").native()};
    config.output_dir = (temp / output).native();
    config.dtype = "float32";
    config.lora_rank = rank;
    config.per_device_train_batch_size = sequences;
    config.gradient_accumulation_steps = 1;
    config.num_train_epochs = 1;
    config.logging_steps = 1;
    config.threads = 1;
    config.profile = profile;
    return config;
  }
};

/// Runs without words.
RunResult fine_tune(const Config& config) {
  auto former = log::set_sink(nullptr);
  RunResult result;
  try {
    result = Trainer(config).train();
  } catch (...) {
    log::set_sink(std::move(former));
    throw;
  }
  log::set_sink(std::move(former));
  return result;
}

struct Traced {
  std::string name, family;
  double begin, end, flops, bytes;
  Index layer;                    // −1 outside
  std::vector<std::string> path;  // names of what lies around it, outermost first
};

/// The events of a trace. Each must lie within those that were open when it began.
std::vector<Traced> read_trace(const io::Path& path) {
  std::vector<Traced> events;
  std::vector<Traced> open;
  const io::Json trace = io::read_json(path);
  for (const io::Json& json : trace.at("traceEvents")) {
    REQUIRE(json.at("ph") == "X");
    REQUIRE(json.at("pid").is_number_integer());
    REQUIRE(json.at("tid").is_number_integer());
    const io::Json& args = json.at("args");
    Traced event{json.at("name").get<std::string>(), args.value("family", ""), json.at("ts").get<double>(),    0,
                 args.value("flops", 0.0),           args.value("bytes", 0.0), args.value("layer", Index{-1}), {}};
    event.end = event.begin + json.at("dur").get<double>();
    while (!open.empty() && event.begin >= open.back().end) open.pop_back();
    if (!open.empty()) REQUIRE(event.end <= open.back().end + 1e-3);  // microseconds, with three places
    for (const Traced& around : open) event.path.push_back(around.name);
    open.push_back(event);
    events.push_back(event);
  }
  return events;
}

bool within(const Traced& event, const std::string& name) {
  return std::find(event.path.begin(), event.path.end(), name) != event.path.end();
}

}  // namespace

TEST_CASE("profile: a run's trace nests and holds every phase, layer, module and kernel family") {
  const Workshop workshop;
  Config config = workshop.config("run", true);
  SUBCASE("plain") {}
  SUBCASE("checkpointed") { config.gradient_checkpointing = true; }
  const RunResult result = fine_tune(config);
  const auto events = read_trace(workshop.temp / "run/profile.json");

  const std::set<std::string> phases{"data", "forward", "head", "backward", "update"};
  std::set<std::string> names, families;
  double steps = 0, inside = 0;
  Index count = 0;
  for (const Traced& event : events) {
    names.insert(event.name);
    if (!event.family.empty()) families.insert(event.family);
    if (event.path.empty()) {
      CHECK(event.name == "step");
      steps += event.end - event.begin;
      ++count;
    }
    if (event.path.size() == 1) inside += event.end - event.begin;
    // All that is computed lies in a phase of its step.
    if (!event.family.empty()) {
      REQUIRE_MESSAGE(event.path.size() >= 2, event.name);
      CHECK(event.path[0] == "step");
      CHECK_MESSAGE(phases.count(event.path[1]) == 1, event.name, " in ", event.path[1]);
    }
  }
  CHECK(count == 3);  // of six, after two
  CHECK(inside <= steps);
  CHECK(inside > 0);
  CHECK(steps * 1e-6 <= result.metrics.seconds);
  for (const char* name : {"data", "forward", "head", "backward", "update", "layer 0", "layer 1", "low-rank", "o_proj",
                           "q_proj, k_proj, v_proj", "gate_proj, up_proj", "down_proj"})
    CHECK_MESSAGE(names.count(name) == 1, name);
  CHECK(names.count("recompute") == (config.gradient_checkpointing ? 1 : 0));
  for (const char* family : {"gemm", "norm", "rope", "attention", "activation", "embedding", "loss", "elementwise",
                             "optimizer", "reduce", "quantize"})
    CHECK_MESSAGE(families.count(family) == 1, family);

  const std::string tables = io::read_file(workshop.temp / "run/profile.md");
  for (const char* text : {"6 steps of ", "| frozen products | ", "| low-rank products | ", "| gemm | head |",
                           "| attention |  |", "| 1 | ", "| resident at the peak | "})
    CHECK_MESSAGE(tables.find(text) != std::string::npos, text);

  // The table of phases has these alone: parts and layers have tables of their own.
  std::set<std::string> expected = phases, listed;
  if (config.gradient_checkpointing) expected.insert("recompute");
  const std::string_view head = "| phase | ms | share |\n|---|---:|---:|\n";
  const auto by_phase = tables.find(head);
  REQUIRE(by_phase != std::string::npos);
  std::istringstream rows(
      tables.substr(by_phase + head.size(), tables.find("\n\n", by_phase) - by_phase - head.size()));
  for (std::string row; std::getline(rows, row);) listed.insert(row.substr(2, row.find(" |", 2) - 2));
  CHECK(listed == expected);

  // What the table says of a layer: all steps are alike, so that three traced ones tell what one moved.
  double bytes = 0;
  for (const Traced& event : events)
    if (event.layer == 1 && !event.family.empty()) bytes += event.bytes / 3;
  const auto header = tables.find("| layer | forward | recompute | backward | ");
  REQUIRE(header != std::string::npos);
  // A column of what works in layers alone.
  const std::string columns = tables.substr(header, tables.find('\n', header) - header);
  CHECK(columns.find("| frozen products |") != std::string::npos);
  for (const char* outside : {"head and loss", "optimizer"}) CHECK(columns.find(outside) == std::string::npos);
  const auto row = tables.find("\n| 1 | ", header);
  REQUIRE(row != std::string::npos);
  std::vector<std::string> cells;
  std::istringstream line(tables.substr(row + 1, tables.find('\n', row + 1) - row - 1));
  for (std::string cell; std::getline(line, cell, '|');) cells.push_back(cell);
  const auto from_end = [&](std::size_t place) { return std::stod(cells.at(cells.size() - place)); };
  CHECK(from_end(3) == doctest::Approx(bytes * 1e-6).epsilon(1e-3));
}

TEST_CASE("profile: a layer's rates are those of its kernels together") {
  Profile profile(Profile::Limits{});
  cpu::Device dev(1);
  dev.set_profile(&profile);
  {
    const ProfileScope step(dev, Profile::Kind::step, "step"), phase(dev, Profile::Kind::phase, "forward");
    const ProfileScope layer(dev, Profile::Kind::layer, "layer", 1);
    // So much that the rates, in the time that passes here, are large numbers.
    { const ProfileScope kernel(dev, "gemm", "gemm", 4e17, 1e17); }
    { const ProfileScope kernel(dev, "norm", "rms_norm", 0, 1e17); }
  }
  const std::string text = run::ProfileTables(profile).text();
  const auto row = text.find("\n| 1 | ", text.find("| layer | "));
  REQUIRE(row != std::string::npos);
  double megabytes = 0, flops = 0, bytes = 0;
  const std::string line = text.substr(row + 1, text.find('\n', row + 1) - row - 1);
  const auto cell = line.find(" | 2e+11 | ");
  REQUIRE_MESSAGE(cell != std::string::npos, line);
  REQUIRE(std::sscanf(line.c_str() + cell, " | %lf | %lf | %lf |", &megabytes, &flops, &bytes) == 3);
  CHECK(flops / bytes == doctest::Approx(2).epsilon(1e-3));
}

TEST_CASE("profile: frozen products are counted as the shapes say") {
  const Workshop workshop;
  fine_tune(workshop.config("run", true));
  double frozen = 0, low_rank = 0, attention = 0;
  for (const Traced& event : read_trace(workshop.temp / "run/profile.json")) {
    if (event.family == "attention") attention += event.flops;
    if (event.family == "low-rank") low_rank += event.flops;
    if (event.family == "gemm" && !within(event, "head")) frozen += event.flops;
  }
  const auto& m = workshop.shape;
  const Index q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  const Index qkv = m.hidden * (q + 2 * kv), layer = qkv + q * m.hidden + 3 * m.hidden * m.ffn;
  const auto rows = static_cast<double>(length * sequences), steps = 3.0;
  // Forward and backward, but nobody wants the input gradient of the lowest layer's q, k and v.
  CHECK(frozen == steps * rows * static_cast<double>(2 * (2 * m.layers * layer - qkv)));
  // Both ways through both factors, since updates ride in the decoded weights.
  const Index factors = m.hidden + q + 2 * (m.hidden + kv) + q + m.hidden + 3 * (m.hidden + m.ffn);
  CHECK(low_rank == steps * rows * static_cast<double>(4 * rank * m.layers * factors));
  const double pairs = static_cast<double>(sequences * length * (length + 1) / 2);
  CHECK(attention == steps * pairs * static_cast<double>(14 * m.layers * q));
}

TEST_CASE("profile: a run that is measured computes the same bits") {
  const Workshop workshop;
  fine_tune(workshop.config("on", true));
  fine_tune(workshop.config("off", false));
  for (const char* file : {"final_model/adapter_model.safetensors", "checkpoints/checkpoint-6/optimizer.safetensors"})
    CHECK(io::read_file(workshop.temp / "on" / file) == io::read_file(workshop.temp / "off" / file));
  CHECK_FALSE(std::filesystem::exists(workshop.temp / "off/profile.json"));
  CHECK_FALSE(std::filesystem::exists(workshop.temp / "off/profile.md"));
}

TEST_CASE("profile: a run of fewer steps is traced from its first") {
  const Workshop workshop;
  Config config = workshop.config("run", true);
  config.max_steps = 2;
  fine_tune(config);
  Index steps = 0;
  for (const Traced& event : read_trace(workshop.temp / "run/profile.json")) steps += event.name == "step";
  CHECK(steps == 2);
}

TEST_CASE("memory use: pages of weights, of other files and of the process are told apart") {
  std::istringstream smaps(R"(55d0c0000000-55d0c0400000 r-xp 00000000 08:01 42                 /usr/bin/lora
Size:               4096 kB
Rss:                2048 kB
Anonymous:            48 kB
VmFlags: rd ex
7f0000000000-7f0040000000 r--s 00000000 08:01 43                         /models/a b/model.safetensors
Size:            1048576 kB
Rss:               10240 kB
Pss:                5120 kB
Anonymous:             0 kB
7f0040000000-7f0050000000 r--p 00000000 08:01 44                         /models/model.gguf
Rss:                1024 kB
Anonymous:             0 kB
7f0050000000-7f0060000000 rw-p 00000000 00:00 0
Rss:                 512 kB
Anonymous:           512 kB
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
Rss:                  16 kB
Anonymous:            16 kB
)");
  const run::ResidentPages pages = run::resident_pages(smaps);
  CHECK(pages.model_files == 1024.0 * (10240 + 1024));
  CHECK(pages.other_files == 1024.0 * 2000);
  CHECK(pages.own == 1024.0 * (48 + 512 + 16));

  const run::ResidentPages now = run::resident_pages();
  CHECK(now.own > 0);
  CHECK(now.other_files > 0);
  CHECK(now.own + now.other_files + now.model_files < 1.1 * run::peak_memory_gib() * 0x1p30);
}

}  // namespace profile_test
