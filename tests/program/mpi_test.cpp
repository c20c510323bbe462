// lora train as several processes that a launcher of MPI starts: the bytes of one process, and how they end together.

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lora/cpu/runtime/machine.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/io/formats/json.hpp"
#include "support/effort.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace mpi_test {

using namespace lora;

namespace {

using Words = std::vector<std::string>;

/// A tiny model, and records of several lengths.
struct Subject {
  test::TempFolder temp;

  Subject() {
    test::write_random_model(temp / "model", test::RandomModel{});
    std::string text;
    for (int record = 0; record < 40; ++record) {
      io::Json ids = io::Json::array();
      for (int i = 0; i < 3 + record * 5 % 13; ++i) ids.push_back((7 * i + record) % 60);
      text += io::to_text(io::json_object({{"input_ids", ids}, {"labels", ids}}), -1) + "\n";
    }
    io::write_file(temp / "data.jsonl", std::string_view(text));
  }

  /// Twelve sequences a step, in six units.
  Words words(const std::string& output, int ranks, const Words& more = {}) const {
    Words result = {"train",
                    "--model_name_or_path=" + (temp / "model").native(),
                    "--dataset=" + (temp / "data.jsonl").native(),
                    "--eval_dataset=" + (temp / "data.jsonl").native(),
                    "--output_dir=" + (temp / output).native(),
                    "--dtype=float32",
                    "--threads=1",
                    "--step_units=6",
                    "--per_device_train_batch_size=2",
                    concat("--gradient_accumulation_steps=", 6 / ranks),
                    "--max_steps=7",
                    "--save_steps=2",
                    "--eval_steps=3",
                    "--logging_steps=1",
                    "--lora_dropout=0.25",
                    "--learning_rate=0.01"};
    result.insert(result.end(), more.begin(), more.end());
    return result;
  }
  test::Outcome run(int ranks, const Words& words) const {
    if (ranks == 1) return test::run_program(LORA_PROGRAM, words);
    // Containers often forbid one process to read another's memory.
    return test::run_program(
        concat("mpirun --allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none", " -n ", ranks,
               " ", LORA_PROGRAM),
        words);
  }

  /// What depends neither on the time nor on who wrote it, by its name.
  std::map<std::string, std::string> lasting(const std::string& output) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(temp / output)) {
      const std::string name = std::filesystem::relative(entry.path(), temp / output).native();
      const bool lasts = name.starts_with("final_model/") || name.starts_with("checkpoints/");
      if (lasts && entry.is_regular_file() && !name.ends_with("README.md")) files[name] = io::read_file(entry.path());
    }
    const std::string log = io::read_file(temp / output / "trainer_log.jsonl");
    std::string numbers;
    for (std::size_t at = 0, end; (end = log.find('\n', at)) != std::string::npos; at = end + 1) {
      io::Json line = io::parse_json(log.substr(at, end - at), "log");
      for (const char* const field : {"tokens_per_second", "elapsed_seconds", "peak_memory_gib"}) line.erase(field);
      numbers += io::to_text(line, -1) + "\n";
    }
    files["numbers of the log"] = numbers;
    return files;
  }

  void expect_same(const std::string& output, const std::map<std::string, std::string>& expected) const {
    const auto files = lasting(output);
    CHECK(files.size() == expected.size());
    for (const auto& file : expected) {
      const std::string name = file.first;
      CAPTURE(name);
      CHECK((files.contains(name) && files.at(name) == file.second));
    }
  }
};

std::size_t count_of(std::string_view text, std::string_view words) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(words, at)) != text.npos; at += words.size()) ++count;
  return count;
}

/// Whether processes can be started together here, by the MPI that the program is built with.
bool has_mpi() {
#if defined(LORA_WITH_MPI)
  return true;
#else
  test::skipped("program: several processes, for want of MPI");
  return false;
#endif
}

}  // namespace

namespace {

/// How processes train together.
struct Way {
  int ranks;
  Index zero_stage;
  const char* dtype = "float32";
  bool full = false;
  const char* offload = "none";
  bool by_address = false;  ///< lora launch without MPI, else mpirun
};

std::string name_of(const Way& way) {
  return concat(way.ranks, way.by_address ? " at an address" : "", ", stage ", way.zero_stage, ", ", way.dtype,
                way.full ? ", full, " : ", ", way.offload);
}

Words words_of(const Subject& s, const std::string& output, const Way& way, const char* device,
               const Words& more = {}) {
  Words words = s.words(output, way.ranks,
                        {concat("--device=", device), concat("--zero_stage=", way.zero_stage),
                         concat("--offload=", way.offload), "--gradient_checkpointing=true"});
  std::replace(words.begin(), words.end(), std::string("--dtype=float32"), concat("--dtype=", way.dtype));
  if (way.full) {
    std::erase(words, "--lora_dropout=0.25");
    words.insert(words.end(), {"--finetuning_type=full", "--load_best_model_at_end=true", "--max_shard_size=9KB"});
  }
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Every way ends with the bytes of one process; the host's optimizer rounds otherwise than an NPU's.
void expect_bytes_of_one(const Subject& s, const char* device, const std::vector<Way>& ways) {
  std::map<std::string, std::map<std::string, std::string>> alone;
  for (const Way& way : ways) {
    CAPTURE(name_of(way));
    const bool steps_on_host = way.offload == std::string_view("optimizer") || way.offload == std::string_view("all");
    const Way one{.ranks = 1,
                  .zero_stage = 0,
                  .dtype = way.dtype,
                  .full = way.full,
                  .offload = steps_on_host ? "optimizer" : "none"};
    auto& expected = alone[name_of(one)];
    if (expected.empty()) {
      const auto outcome = s.run(1, words_of(s, name_of(one), one, device));
      CAPTURE(outcome.errors);
      REQUIRE(outcome.status == 0);
      expected = s.lasting(name_of(one));
      CHECK(expected.size() > 10);
      CHECK(expected.contains("final_model/model.safetensors.index.json") == way.full);
    }
    Words words = words_of(s, name_of(way), way, device);
    if (way.by_address)
      words.insert(words.begin(), {"launch", concat("--nproc_per_node=", way.ranks), "--master_addr=127.0.0.1",
                                   concat("--master_port=", 20000 + ::getpid() % 10000)});
    const auto outcome = s.run(way.by_address ? 1 : way.ranks, words);
    CAPTURE(outcome.errors);
    REQUIRE(outcome.status == 0);
    CHECK(test::holds(outcome.errors, concat(way.ranks, " ranks on 1 host, 1 thread each: ", way.ranks, " x 2 x ",
                                             6 / way.ranks, " = 12 sequences a step")));
    CHECK(count_of(outcome.errors, "step 7/7") == 1);
    const bool streams = way.offload == std::string_view("params") || way.offload == std::string_view("all");
    const bool shares = way.zero_stage == 3, on_npus = std::string_view(device) != "cpu";
    CHECK(test::holds(outcome.errors, "zero_stage 3: of the weights that train this rank has its part") ==
          (shares && way.full));
    CHECK(test::holds(outcome.errors, "zero_stage 3: the model's weights stay mapped from their files") ==
          (shares && !way.full && !on_npus));
    CHECK(test::holds(outcome.errors, "this rank has its part, and gathers each") == (shares && (way.full || on_npus)));
    CHECK(test::holds(outcome.errors, "of page-locked memory") == streams);
    s.expect_same(name_of(way), expected);
    const io::Json told = io::read_json(s.temp / name_of(way) / "training_metrics.json").at("ranks");
    REQUIRE(std::ssize(told) == way.ranks);
    CHECK(told[1].at("sent_bytes") > 0);
    CHECK(test::holds(told[1].at("device").get<std::string>(), "NPU 1") == on_npus);
    std::filesystem::remove_all(s.temp / name_of(way));
  }
}

/// Begun by six, gone on with by others from the checkpoints that they left, each with the settings of the first.
void expect_turns(const Subject& s, const char* device, const Way& six, const std::vector<int>& others) {
  REQUIRE(s.run(6, words_of(s, "in turn", six, device)).status == 0);
  const auto expected = s.lasting("in turn");
  Index step = 0;
  for (const int ranks : others) {
    CAPTURE(ranks);
    step += 2;
    Way way = six;
    if (ranks == 1) way.zero_stage = 0;
    const io::Path checkpoint = s.temp / "in turn" / "checkpoints" / concat("checkpoint-", step);
    const auto outcome =
        s.run(ranks, words_of(s, "in turn", way, device, {"--resume_from_checkpoint=" + checkpoint.native()}));
    CAPTURE(outcome.errors);
    CHECK(outcome.status == 0);
    CHECK(test::holds(outcome.errors, "a step keeps the 12 sequences that it has had, whichever number of ranks"));
    s.expect_same("in turn", expected);
  }
}

constexpr const char* left_out = "program: ways in which processes share out in bfloat16";

}  // namespace

TEST_CASE("program: any number of processes trains the bytes of one, and another number goes on to the same") {
  if (!has_mpi()) return;
  const Subject s;
  expect_bytes_of_one(s, "cpu", {{2, 2}, {3, 3}, {6, 1}, {3, 3, "float32", true}, {6, 3, "bfloat16", true}});
  if (test::effort(true, false, left_out)) expect_bytes_of_one(s, "cpu", {{2, 0, "bfloat16"}, {6, 3, "bfloat16"}});
  expect_turns(s, "cpu", {6, 0}, {2, 3, 1});
}

TEST_CASE("program: threads that are given are those of each process") {
  if (!has_mpi()) return;
  const Subject s;
  const auto threads_of = [&](const std::string& output) {
    std::vector<Index> threads;
    const io::Json metrics = io::read_json(s.temp / output / "training_metrics.json");
    for (const io::Json& rank : metrics.at("ranks")) threads.push_back(rank.at("threads").get<Index>());
    return threads;
  };
  const Index all = cpu::available_threads(), many = all / 2 + 1;  // of which two are more than there are
  Words words = s.words("given", 2, {"--max_steps=1"});
  std::erase_if(words, [](const std::string& word) { return word == "--max_steps=7"; });
  std::replace(words.begin(), words.end(), std::string("--threads=1"), concat("--threads=", many));
  const auto outcome = s.run(2, words);
  CAPTURE(outcome.errors);
  REQUIRE(outcome.status == 0);
  CHECK(test::holds(outcome.errors,
                    concat("2 ranks on 1 host, ", many, many == 1 ? " thread each: " : " threads each: ")));
  const auto told = [](const test::Outcome& run) { return count_of(run.errors, "Warning: the 2 ranks on "); };
  CHECK(told(outcome) == 1);
  CHECK(test::holds(outcome.errors, concat(" have ", 2 * many, " threads and may use ", all, " processor")));
  CHECK(threads_of("given") == std::vector<Index>{many, many});
  // Where none are, those of the host are shared out.
  std::erase(words, concat("--threads=", many));
  std::replace(words.begin(), words.end(), "--output_dir=" + (s.temp / "given").native(),
               "--output_dir=" + (s.temp / "shared").native());
  words.insert(words.begin(), {"launch", "--nproc_per_node=2"});
  const Index each = std::max<Index>(1, all / 2);
  const auto shared = s.run(1, words);
  CAPTURE(shared.errors);
  REQUIRE(shared.status == 0);
  CHECK(test::holds(shared.errors, concat("2 ranks on 1 host, ", each, each == 1 ? " thread" : " threads",
                                          " each: 2 x 2 x 3 = 12 sequences a step\n")));
  CHECK(threads_of("shared") == std::vector<Index>{each, each});
}

TEST_CASE("program: any number of NPUs trains the bytes of one, each by a process of its own") {
  if (!has_mpi()) return;
  const Subject s;
  const test::Environment libraries("LORA_ASCEND_LIBRARIES", LORA_STAND_IN), npus("STAND_IN_DEVICES", "8");
  expect_bytes_of_one(s, "ascend",
                      {{2, 0},
                       {3, 1},
                       {3, 1, "float32", false, "optimizer"},
                       {2, 2},
                       {3, 2, "float32", false, "optimizer"},
                       {2, 3},
                       {3, 3, "float32", false, "all"}});
  if (test::effort(true, false, left_out))
    expect_bytes_of_one(s, "ascend", {{6, 3, "bfloat16", false, "params"}, {3, 0, "bfloat16", false, "all"}});
  const auto outcome = s.run(2, s.words("one card", 2, {"--device=ascend:3"}));
  CHECK(outcome.status == 2);
  CHECK(test::holds(outcome.errors, "ranks 0 and 1 both have NPU 3 on "));
  CHECK_FALSE(io::is_there(s.temp / "one card"));
}

TEST_CASE("program: processes that share out the weights of full training on NPUs write the bytes of one") {
  if (!has_mpi()) return;
  const Subject s;
  const test::Environment libraries("LORA_ASCEND_LIBRARIES", LORA_STAND_IN), npus("STAND_IN_DEVICES", "8");
  expect_bytes_of_one(s, "ascend", {{2, 3, "float32", true}, {3, 3, "bfloat16", true, "optimizer"}});
  expect_turns(s, "ascend", {6, 3, "float32", true}, {2, 3, 1});
}

TEST_CASE("program: NPUs whose processes find each other without MPI train the bytes of one, whatever they share out") {
  const Subject s;
  const test::Environment libraries("LORA_ASCEND_LIBRARIES", LORA_STAND_IN), npus("STAND_IN_DEVICES", "8");
  constexpr const char* none = "none";
  expect_bytes_of_one(s, "ascend", {{2, 3, "float32", true, none, true}, {6, 3, "bfloat16", false, "all", true}});
  if (test::effort(true, false, left_out))
    expect_bytes_of_one(s, "ascend", {{3, 1, "bfloat16", false, none, true}, {2, 2, "bfloat16", true, none, true}});
}

TEST_CASE("program: an error of processes is said once, and ends all") {
  if (!has_mpi()) return;
  const Subject s;
  std::filesystem::rename(s.temp / "data.jsonl", s.temp / "elsewhere.jsonl");
  auto outcome = s.run(3, s.words("run", 3));
  CHECK(outcome.status == 1);
  CHECK(count_of(outcome.errors, "error: rank 0 on ") == 1);
  CHECK(count_of(outcome.errors, "data.jsonl") == 1);
  std::filesystem::rename(s.temp / "elsewhere.jsonl", s.temp / "data.jsonl");
  Words words = s.words("run", 3);
  words[7] = "--step_units=2";
  outcome = s.run(3, words);
  CHECK(outcome.status == 2);
  CHECK(count_of(outcome.errors, "a step of 2 units can't be shared by 3 ranks; every rank needs one") == 1);
  CHECK_FALSE(io::is_there(s.temp / "run"));
}

TEST_CASE("program: launch starts processes of train, and says how") {
  if (!has_mpi()) return;
  const Subject s;
  Words words = {"launch", "--nproc_per_node=2"};
  for (const std::string& word : s.words("run", 2, {"--zero_stage=1"})) words.push_back(word);
  auto outcome = s.run(1, words);
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 0);
  CHECK(outcome.errors.starts_with("mpirun -n 2 "));
  CHECK(test::holds(outcome.errors, "2 ranks on 1 host, 1 thread each"));
  REQUIRE(s.run(1, s.words("alone", 1)).status == 0);
  s.expect_same("run", s.lasting("alone"));
  const io::Json ranks = io::read_json(s.temp / "run" / "training_metrics.json").at("ranks");
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[0].at("sent_bytes") > 0);
  CHECK(ranks[0].at("sent_bytes") == ranks[1].at("received_bytes"));
  CHECK(ranks[1].at("communication_seconds") > 0);
  // A single one is none of several.
  words[1] = "--nproc_per_node=1";
  words.emplace_back("--overwrite_output_dir");
  words.emplace_back("--gradient_accumulation_steps=6");
  std::erase(words, "--gradient_accumulation_steps=3");
  outcome = s.run(1, words);
  CHECK(outcome.status == 0);
  CHECK_FALSE(test::holds(outcome.errors, "ranks on"));
  s.expect_same("run", s.lasting("alone"));
}

TEST_CASE("program: a signal to launch ends its ranks with a checkpoint, however long a step takes") {
  if (!has_mpi()) return;
  const Subject s;
  // mpirun kills its ranks 2 s after a signal that it does not pass on; a step of so much takes longer.
  io::Json ids = io::Json::array();
  for (int i = 0; i < 1000; ++i) ids.push_back(7 * i % 60);
  const std::string record = io::to_text(io::json_object({{"input_ids", ids}, {"labels", ids}}), -1) + "\n";
  std::string text;
  for (int i = 0; i < 600; ++i) text += record;
  io::write_file(s.temp / "long.jsonl", std::string_view(text));
  const Words words = {"launch",
                       "--nproc_per_node=2",
                       "train",
                       "--model_name_or_path=" + (s.temp / "model").native(),
                       "--dataset=" + (s.temp / "long.jsonl").native(),
                       "--output_dir=" + (s.temp / "run").native(),
                       "--threads=1",
                       "--per_device_train_batch_size=1",
                       "--gradient_accumulation_steps=300",
                       "--share_prefixes=false",
                       "--max_steps=1000000",
                       "--save_steps=0",
                       "--logging_steps=1"};
  test::Process launch(LORA_PROGRAM, words, {});
  const io::Path log = s.temp / "run" / "trainer_log.jsonl";
  for (int i = 0; i < 60000 && !(io::is_there(log) && !io::read_file(log).empty()); ++i) ::usleep(5000);
  launch.send(SIGTERM);
  const std::string errors = launch.errors();
  CAPTURE(errors);
  CHECK(launch.wait() == 143);
  CHECK(test::holds(errors, "stopping after this step"));
  CHECK(io::entries_of(s.temp / "run" / "checkpoints").size() == 1);
}

TEST_CASE("program: a command line of launch that can't be meant is refused") {
  const auto told = [](const Words& words) {
    const auto outcome = test::run_program(LORA_PROGRAM, words);
    CHECK(outcome.status == 2);
    return outcome.errors;
  };
  CHECK(told({"launch", "train"}) ==
        "error: lora launch: --nproc_per_node: given nothing, allowed: a number of processes, at least 1\n");
  CHECK(told({"launch", "--nproc_per_node", "0", "train"}) ==
        "error: lora launch: --nproc_per_node: given 0, allowed: a number of processes, at least 1\n");
  CHECK(told({"launch", "--nproc_per_node", "2"}) ==
        "error: lora launch: given no command, allowed: train with its keys, behind the options of launch\n");
  CHECK(told({"launch", "--nproc_per_node", "2", "eval"}) ==
        "error: lora launch: given 'eval', allowed: train with its keys, behind the options of launch\n");
  for (const char* hosts : {"0", "-1"})
    CHECK(told({"launch", "--nproc_per_node", "2", "--nnodes", hosts, "train"}) ==
          concat("error: lora launch: --nnodes: given ", hosts, ", allowed: a number of machines, at least 1\n"));
  CHECK(told({"launch", "--nproc_per_node", "2", "--nnodes", "2", "train"}) ==
        "error: lora launch: --master_addr, or MASTER_ADDR: given nothing, expected the address of the first of 2 "
        "machines\n");
  for (const char* node : {"2", "-1"})
    CHECK(told({"launch", "--nproc_per_node", "2", "--nnodes", "2", "--node_rank", node, "train"}) ==
          "error: lora launch: --node_rank, or NODE_RANK: given 2, allowed: a number from 0 to 1\n");
  CHECK(told({"launch", "--nproc_per_node", "2", "--master_port", "70000", "train"}) ==
        "error: lora launch: --master_port: given 70000, allowed: a port from 1 to 65535\n");
  CHECK(test::holds(told({"launch", "--nproc_per_node", "two", "train"}), "lora launch: "));
  for (const Words& words : {Words{"launch", "--help"}, Words{"help", "launch"}}) {
    const auto outcome = test::run_program(LORA_PROGRAM, words);
    CHECK(outcome.status == 0);
    CHECK(test::holds(outcome.output, "--nproc_per_node INT"));
  }
  CHECK(test::holds(test::run_program(LORA_PROGRAM, {"--help"}).output, "\n  launch "));
}

TEST_CASE("program: a process that hangs is named once its time is over, and all end") {
  if (!has_mpi()) return;
  const Subject s;
  std::string command = "mpirun --allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none";
  Words list = s.words("run", 2, {"--ddp_timeout=2"});
  std::replace(list.begin(), list.end(), std::string("--max_steps=7"), std::string("--max_steps=1000000"));
  std::string words;
  for (const std::string& word : list) words += " '" + word + "'";
  // The second of them is stopped once there is a checkpoint.
  io::write_file(s.temp / "hangs.sh",
                 concat("#!/bin/sh\n", LORA_PROGRAM, words, " &\nwhile [ ! -e '", (s.temp / "run").native(),
                        "'/checkpoints/checkpoint-2 ]; do sleep 0.1; done\nkill -STOP $!\nwait\n"));
  const auto outcome = test::run_program(
      concat(command, " -n 1 ", LORA_PROGRAM, words, " : -n 1 sh '", (s.temp / "hangs.sh").native(), "'"), {});
  CAPTURE(outcome.errors);
  CHECK(outcome.status != 0);
  CHECK(test::holds(outcome.errors, "error: rank 0 on "));
  // Its first missing word is one that it would send, or one that it would take.
  const std::string hangs = " nothing for 2 s: it has ended, hangs, or is at other work than this one";
  CHECK((test::holds(outcome.errors, "rank 1 sent" + hangs) || test::holds(outcome.errors, "rank 1 took" + hangs)));
}

TEST_CASE("program: NPUs whose processes meet at an address train the bytes of one") {
  const Subject s;
  const test::Environment libraries("LORA_ASCEND_LIBRARIES", LORA_STAND_IN), npus("STAND_IN_DEVICES", "8");
  const std::string port = concat(20000 + ::getpid() % 10000);
  // Each of two hosts has its launch, told what is its own by the environment or by options; the second begins first.
  const auto launch = [&](const std::string& output, const Words& more) {
    std::string lines = "#!/bin/sh\n";
    for (const int node : {1, 0}) {
      if (node == 1) lines += concat("NODE_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=", std::string_view(port), " ");
      lines += concat(LORA_PROGRAM, " launch --nproc_per_node 1 --nnodes 2");
      if (node == 0) lines += concat(" --node_rank 0 --master_addr 127.0.0.1 --master_port ", std::string_view(port));
      for (const std::string& word : s.words(output, 2, more)) lines += " '" + word + "'";
      lines += node == 1 ? " & second=$!\n" : "; first=$?\n";
    }
    io::write_file(s.temp / "hosts.sh", lines + "wait $second\necho \"first $first, second $?\"\n");
    return test::run_program(concat("sh '", (s.temp / "hosts.sh").native(), "'"), {});
  };
  REQUIRE(s.run(1, s.words("alone", 1, {"--device=ascend"})).status == 0);
  // Of two hosts the same NPU, by its number, is another; here there is one host.
  auto outcome = launch("by two", {"--device=ascend"});
  CHECK(outcome.output == "first 2, second 2\n");
  CHECK(test::holds(outcome.errors, "ranks 0 and 1 both have NPU 0 on "));
  // A process of another run, by its settings, is told of before any of them has made a thing.
  io::write_file(s.temp / "train.sh",
                 concat("#!/bin/sh\n[ $RANK = 1 ] && set -- \"$@\" --seed=5\nexec ", LORA_PROGRAM, " \"$@\"\n"));
  {
    std::string lines = "#!/bin/sh\nexport WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + "\n";
    for (const int rank : {1, 0}) {
      lines += concat("RANK=", rank, " LOCAL_RANK=", rank, " sh '", (s.temp / "train.sh").native(), "'");
      for (const std::string& word : s.words("by two runs", 2, {"--device=ascend"})) lines += " '" + word + "'";
      lines += rank == 1 ? " & second=$!\n" : "; first=$?\n";
    }
    io::write_file(s.temp / "runs.sh", lines + "wait $second\necho \"first $first, second $?\"\n");
    outcome = test::run_program(concat("sh '", (s.temp / "runs.sh").native(), "'"), {});
    CAPTURE(outcome.errors);
    CHECK(outcome.output == "first 2, second 2\n");
    CHECK(test::holds(outcome.errors,
                      "rank 1 of 2 at 127.0.0.1 is of another run: ranks differ in the setting seed: "
                      "rank 0 has 42, it has 5\n"));
    CHECK_FALSE(io::is_there(s.temp / "by two runs"));
  }
  Words words = {"launch", "--nproc_per_node=3", "--node_rank=0", "--master_addr=127.0.0.1", "--master_port=" + port};
  for (const std::string& word : s.words("by three", 3, {"--device=ascend"})) words.push_back(word);
  // Options are taken before the environment's.
  const test::Environment node("NODE_RANK", "1"), address("MASTER_ADDR", "192.0.2.1"), taken("MASTER_PORT", "1");
  outcome = s.run(1, words);
  CAPTURE(outcome.errors);
  REQUIRE(outcome.status == 0);
  CHECK(outcome.errors.starts_with("ranks 0 to 2 of 3 meet the others at 127.0.0.1:" + port + "\n"));
  CHECK(test::holds(outcome.errors, "waiting for 2 other ranks at 127.0.0.1:" + port));
  CHECK(test::holds(outcome.errors, "3 ranks on 1 host, 1 thread each: 3 x 2 x 2 = 12 sequences a step\n"));
  CHECK(count_of(outcome.errors, "step 7/7") == 1);
  s.expect_same("by three", s.lasting("alone"));
  // A failure of all ends launch as it ended them, and is said once.
  words.emplace_back("--overwrite_output_dir");
  std::filesystem::remove(s.temp / "data.jsonl");
  outcome = s.run(1, words);
  CHECK(outcome.status == 1);
  CHECK(count_of(outcome.errors, "error: rank 0 on ") == 1);
}

TEST_CASE("program: what ends one process that launch has started ends all, and nothing is left behind") {
  const Subject s;
  const test::Environment libraries("LORA_ASCEND_LIBRARIES", LORA_STAND_IN), npus("STAND_IN_DEVICES", "8");
  const std::string port = concat(30000 + ::getpid() % 10000);
  const auto end_by = [&](const std::string& what, const std::string& output) {
    Words list = s.words(output, 2, {"--device=ascend"});
    std::replace(list.begin(), list.end(), std::string("--max_steps=7"), std::string("--max_steps=1000000"));
    std::string words;
    for (const std::string& word : list) words += " '" + word + "'";
    io::write_file(
        s.temp / "ends.sh",
        concat("#!/bin/sh\n", LORA_PROGRAM, " launch --nproc_per_node 2 --master_addr 127.0.0.1 --master_port ",
               std::string_view(port), words, " &\nlaunch=$!\n", "while [ ! -e '", (s.temp / output).native(),
               "'/checkpoints/checkpoint-2 ]; do sleep 0.1; done\n", std::string_view(what),
               "\nwait $launch\necho status $?\nsleep 0.2\npgrep -f 'output_dir=", (s.temp / output).native(),
               "' | wc -l\n"));
    return test::run_program(concat("sh '", (s.temp / "ends.sh").native(), "'"), {});
  };
  // The launch's children are its own; of these the last is rank 1.
  const auto killed = end_by("kill -KILL $(pgrep -P $launch | tail -1)", "killed");
  CAPTURE(killed.errors);
  CHECK(killed.output == "status 137\n0\n");
  CHECK(test::holds(killed.errors, "rank 1 was ended by signal 9 (Killed)\n"));
  CHECK(test::holds(killed.errors, "error: rank 0 on "));
  const auto stopped = end_by("kill -TERM $launch", "stopped");
  CAPTURE(stopped.errors);
  CHECK(stopped.output == "status 143\n0\n");
  CHECK(test::holds(stopped.errors, "stopping after this step"));
  const auto checkpoints = io::entries_of(s.temp / "stopped" / "checkpoints");
  CHECK(checkpoints.size() > 1);
}

TEST_CASE("program: launch names the rank of all that was ended, on any of the machines") {
  const Subject s;
  const test::Environment libraries("LORA_ASCEND_LIBRARIES", LORA_STAND_IN), npus("STAND_IN_DEVICES", "8");
  std::string words;
  for (const std::string& word : s.words("run", 2, {"--device=ascend"})) words += " '" + word + "'";
  // The first machine never comes, for which this one waits.
  io::write_file(s.temp / "second.sh",
                 concat("#!/bin/sh\n", LORA_PROGRAM, " launch --nproc_per_node 1 --nnodes 2 --node_rank 1",
                        " --master_addr 127.0.0.1 --master_port ", 20000 + ::getpid() % 10000, words,
                        " &\nlaunch=$!\nwhile ! child=$(pgrep -P $launch); do sleep 0.1; done\n"
                        "kill -KILL $child\nwait $launch\necho status $?\n"));
  const auto outcome = test::run_program(concat("sh '", (s.temp / "second.sh").native(), "'"), {});
  CAPTURE(outcome.errors);
  CHECK(outcome.output == "status 137\n");
  CHECK(test::holds(outcome.errors, "rank 1 was ended by signal 9 (Killed)\n"));
}

TEST_CASE(
    "program: processes that meet at an address are refused on processors, and so are other commands in several") {
  const Subject s;
  auto outcome = test::run_program(concat("WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1 ", LORA_PROGRAM),
                                   s.words("run", 1, {"--device=cpu"}));
  CHECK(outcome.status == 2);
  CHECK(test::holds(
      outcome.errors,
      "the environment's WORLD_SIZE is 2, as a launcher sets it that starts several processes, but those "
      "of 'lora train' on processors find each other by MPI: start them with mpirun or srun, or unset WORLD_SIZE"));
  outcome = test::run_program(concat("WORLD_SIZE=2 OMPI_COMM_WORLD_SIZE=3 ", LORA_PROGRAM), s.words("run", 1));
  CHECK(outcome.status == 2);
  CHECK(test::holds(outcome.errors, "the environment's WORLD_SIZE is 2, but its OMPI_COMM_WORLD_SIZE is 3: two "));
  for (const int rank : {0, 1}) {
    outcome = test::run_program(concat("RANK=", rank, " ", LORA_PROGRAM), s.words("run", 1));
    CHECK(outcome.status == 2);
    CHECK(outcome.errors == concat("error: the environment's RANK is ", rank,
                                   ", but no WORLD_SIZE is set; expected both, as launchers set them\n"));
  }
  outcome = test::run_program(
      concat("OMPI_COMM_WORLD_SIZE=2 ", LORA_PROGRAM),
      Words{"eval", "--model_name_or_path=" + (s.temp / "model").native(),
            "--dataset=" + (s.temp / "data.jsonl").native(), "--output_dir=" + (s.temp / "evaluated").native()});
  CHECK(outcome.status == 2);
  CHECK(test::holds(outcome.errors,
                    "the environment's OMPI_COMM_WORLD_SIZE is 2, as a launcher sets it that starts "
                    "several processes, but this is one process; start one, or unset "));
}

}  // namespace mpi_test
