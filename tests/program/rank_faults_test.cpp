// What goes wrong with one of several processes that share gradients, and layers, out: all end soon and name it, and
// what was saved stays.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/files/paths.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/random_model.hpp"
#include "support/random_tokens.hpp"
#include "support/temp_folder.hpp"

#if defined(LORA_WITH_MPI)

namespace rank_faults_test {

using namespace lora;

namespace {

using Words = std::vector<std::string>;

struct Subject {
  test::TempFolder temp;

  Subject() {
    test::write_random_model(temp / "model", test::RandomModel{});
    test::write_random_model(temp / "other", test::RandomModel{.seed = 2});
    test::write_tokens(temp / "data.jsonl", 12, 1);
  }

  io::Path run() const { return temp / "run"; }

  /// The command of one process.
  std::string process(int zero_stage, const std::string& model = "model", const std::string& more = {}) const {
    Words words = {LORA_PROGRAM,
                   "train",
                   "--model_name_or_path=" + (temp / model).native(),
                   "--dataset=" + (temp / "data.jsonl").native(),
                   "--output_dir=" + run().native(),
                   "--dtype=float32",
                   "--threads=1",
                   "--per_device_train_batch_size=1",
                   "--gradient_accumulation_steps=2",
                   "--save_steps=2",
                   "--save_total_limit=2",
                   concat("--zero_stage=", zero_stage)};
    std::string command;
    for (const std::string& word : words) command += " " + test::shell_word(word);
    return command + " " + more;
  }

  /// What two processes leave, each with its own command; the script `meanwhile` runs beside them, to which `of 1`
  /// prints the process of rank 1.
  test::Outcome together(const std::string& first, const std::string& second, const std::string& meanwhile = {}) const {
    const std::string own = "sh -c 'echo $$ > \"$0.$OMPI_COMM_WORLD_RANK\"; exec \"$@\"' " +
                            test::shell_word((temp / "process").native()) + " ";
    const std::string script = concat(
        "of() { cat ", test::shell_word((temp / "process").native()), ".$1; }\n",
        "mpirun --allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none -n 1 ", own,
        std::string_view(first), " : -n 1 ", own, std::string_view(second), " &\nlauncher=$!\n",
        std::string_view(meanwhile), "wait $launcher\nstatus=$?\nsleep 0.5\nfor rank in 0 1; do\n",
        "  case $(ps -o stat= -p $(of $rank)) in ''|Z*) ;; *) echo rank $rank is left ;; esac\ndone\nexit $status\n");
    io::write_file(temp / "together.sh", std::string_view(script));
    return test::run_program("sh " + test::shell_word((temp / "together.sh").native()), {});
  }

  /// Any checkpoint will do: the first is soon one too many, and removed.
  std::string until_saved() const {
    return "until ls -d " + test::shell_word((run() / "checkpoints").native()) +
           "/checkpoint-* >/dev/null 2>&1; do sleep 0.05; done\n";
  }

  /// Goes on from the newest checkpoint, which must be whole, alone.
  void expect_resumed(Index steps, const std::string& more = {}) const {
    const auto outcome =
        test::run_program(process(0, "model", concat(more, " --resume_from_checkpoint=auto --max_steps=", steps)), {});
    CAPTURE(outcome.errors);
    CHECK(outcome.status == 0);
    CHECK(test::holds(outcome.errors, "resuming from "));
  }
};

/// Lines that say an error.
Words errors_of(const test::Outcome& outcome) {
  Words lines;
  for (std::size_t at = 0, end; at < outcome.errors.size(); at = end + 1) {
    end = std::min(outcome.errors.find('\n', at), outcome.errors.size());
    const std::string line = outcome.errors.substr(at, end - at);
    if (line.starts_with("error: ")) lines.push_back(line);
  }
  return lines;
}

/// One line, which has these parts; no process is left.
void expect_told(const test::Outcome& outcome, int status, const Words& parts) {
  CAPTURE(outcome.errors);
  CHECK(outcome.status == status);
  CHECK(outcome.output == "");
  const Words lines = errors_of(outcome);
  REQUIRE(lines.size() == 1);
  for (const std::string& part : parts) CHECK(test::holds(lines.front(), part));
}

}  // namespace

TEST_CASE(
    "program: of ranks that share out one that is stopped is named by the other, and what was saved stays whole") {
  for (const int zero_stage : {2, 3})
    for (const int stopped : {0, 1}) {
      CAPTURE(zero_stage);
      CAPTURE(stopped);
      const Subject s;
      const std::string endless = s.process(zero_stage, "model", "--max_steps=1000000 --ddp_timeout=3");
      const auto outcome = s.together(endless, endless, s.until_saved() + concat("kill -STOP $(of ", stopped, ")\n"));
      expect_told(outcome, 1,
                  {concat("error: rank ", 1 - stopped, " on "), concat(": rank ", stopped, " "),
                   " nothing for 3 s: it has ended, hangs, "});
    }
}

TEST_CASE("program: of ranks that share out one that is short of memory says so, with its host, and ends the other") {
  for (const int zero_stage : {2, 3})
    for (const int poor : {0, 1}) {
      CAPTURE(zero_stage);
      CAPTURE(poor);
      const Subject s;
      const std::string command = s.process(zero_stage, "model", "--max_steps=4 --resume_from_checkpoint=auto");
      REQUIRE(s.together(command, command).status == 0);
      const std::string longer = s.process(zero_stage, "model", "--max_steps=6 --resume_from_checkpoint=auto"),
                        limited = "sh -c 'ulimit -v 300000; exec \"$0\" \"$@\"' " + longer;
      const auto outcome = poor == 0 ? s.together(limited, longer) : s.together(longer, limited);
      expect_told(outcome, 1, {concat("error: rank ", poor, " on "), "no address space for an arena"});
      s.expect_resumed(6);
    }
}

TEST_CASE(
    "program: a full disk ends ranks that share out, the one that writes says why, and what was saved stays whole") {
  const Subject s;
  const auto command = [&](Index steps) {
    return s.process(2, "model", concat("--lora_rank=64 --resume_from_checkpoint=auto --max_steps=", steps));
  };
  REQUIRE(s.together(command(4), command(4)).status == 0);
  // The limit, too small for the optimizer's file, comes once MPI has made files of its own: then the oldest checkpoint
  // has made room for another.
  const auto state = io::read_file(s.run() / "checkpoints" / "checkpoint-4" / "optimizer.safetensors").size();
  const auto outcome = s.together(
      command(1000000), command(1000000),
      concat("while [ -d ", test::shell_word((s.run() / "checkpoints" / "checkpoint-2").native()),
             " ]; do sleep 0.05; done\nfor rank in 0 1; do prlimit --fsize=", state - 1, " --pid $(of $rank); done\n"));
  expect_told(outcome, 1, {"error: rank 0 on ", "optimizer.safetensors: ", "File too large"});
  Index newest = 0;
  for (const io::Path& checkpoint : io::entries_of(s.run() / "checkpoints")) {
    const std::string name = checkpoint.filename().native();
    REQUIRE(name.starts_with("checkpoint-"));
    newest = std::max<Index>(newest, std::stoll(name.substr(name.find('-') + 1)));
  }
  CHECK(newest > 4);
  s.expect_resumed(newest + 2, "--lora_rank=64");
}

TEST_CASE("program: ranks that share out and have other weights say which differ, and write nothing") {
  for (const int zero_stage : {2, 3}) {
    CAPTURE(zero_stage);
    const Subject s;
    const auto outcome =
        s.together(s.process(zero_stage, "model", "--max_steps=2"), s.process(zero_stage, "other", "--max_steps=2"));
    expect_told(outcome, 2, {"error: rank 0 on ", "ranks differ in the setting model_name_or_path", "rank 1 has "});
    CHECK_FALSE(io::is_there(s.run() / "checkpoints"));
  }
}

}  // namespace rank_faults_test

#endif
