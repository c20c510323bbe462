// The program on NPUs that are not there, or fail: it ends with one sentence that says what is wrong and what helps,
// and the next run goes on from the last checkpoint. On the stand-in for the vendor's libraries.

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/effort.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/random_model.hpp"
#include "support/random_tokens.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace ascend_faults_program_test {

namespace {

using namespace lora;
using test::holds;

using Variables = std::vector<std::pair<const char*, std::string>>;

struct Subject {
  test::TempFolder temp;

  Subject() {
    test::write_random_model(temp / "model", {});
    test::write_tokens(temp / "train.jsonl", 8, 1);
  }

  std::vector<std::string> words(const std::vector<std::string>& more = {}, const std::string& output = "run") const {
    std::vector<std::string> all = {"train",
                                    "--device=ascend",
                                    "--threads=1",
                                    "--model_name_or_path=" + (temp / "model").native(),
                                    "--dataset=" + (temp / "train.jsonl").native(),
                                    "--output_dir=" + (temp / output).native(),
                                    "--max_steps=4",
                                    "--save_steps=1",
                                    "--logging_steps=1",
                                    "--lora_rank=2",
                                    "--lora_dropout=0.25",
                                    "--learning_rate=0.01",
                                    "--lr_scheduler_type=constant",
                                    "--gradient_accumulation_steps=1"};
    // A key may be given once.
    for (const std::string& word : more)
      std::erase_if(all,
                    [&](const std::string& other) { return other.starts_with(word.substr(0, word.find('=') + 1)); });
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string adapter(const std::string& output = "run") const {
    return io::read_file(temp / output / "final_model" / "adapter_model.safetensors");
  }
  std::vector<double> losses(const std::string& output = "run") const {
    std::vector<double> all;
    const std::string text = io::read_file(temp / output / "trainer_log.jsonl");
    for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
      const io::Json line = io::parse_json(text.substr(at, end - at), "log");
      if (line.contains("loss")) all.push_back(line.at("loss").get<double>());
    }
    return all;
  }
};

/// Runs the program with the stand-in and these variables. It may take a minute, and then counts as hanging.
test::Outcome run(const std::vector<std::string>& words, const Variables& variables = {}) {
  std::vector<std::unique_ptr<test::Environment>> set;
  set.push_back(std::make_unique<test::Environment>("LORA_ASCEND_LIBRARIES", LORA_STAND_IN));
  set.push_back(std::make_unique<test::Environment>("STAND_IN_CHECK_LEAKS", "1"));
  set.push_back(std::make_unique<test::Environment>("STAND_IN_DELAY_US", "5"));
  for (const auto& [name, value] : variables) set.push_back(std::make_unique<test::Environment>(name, value));
  return test::run_program("timeout -k 1 60 " + test::shell_word(LORA_PROGRAM), words);
}

/// Its last line, which is an error, where no other is one, and nothing was done against the interface's rules.
std::string error_of(const test::Outcome& outcome) {
  CAPTURE(outcome.errors);
  CHECK_FALSE(holds(outcome.errors, "stand-in"));
  CHECK_FALSE(holds(outcome.errors, "terminate"));
  const std::string& text = outcome.errors;
  if (text.empty() || text.back() != '\n') return "no line";
  const auto begin = text.rfind('\n', text.size() - 2) + 1;  // of the first line: npos + 1, which is 0
  const std::string last = text.substr(begin, text.size() - 1 - begin);
  CHECK_FALSE(holds(text.substr(0, begin), "error: "));
  return last.starts_with("error: ") ? last.substr(7) : "no error: " + last;
}

std::string listed(const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables) text += concat(name, "=", value, " ");
  return text;
}

void check_error(const std::vector<std::string>& words, const Variables& variables, int status,
                 const std::string& begin, const std::string& part = {}) {
  const std::string environment = listed(variables);
  CAPTURE(environment);
  const auto outcome = run(words, variables);
  const std::string error = error_of(outcome);
  CHECK_MESSAGE(error.starts_with(begin), error);
  CHECK_MESSAGE(holds(error, part), error);
  CHECK(outcome.status == status);
}

void check_no_temporaries(const io::Path& folder) {
  if (!std::filesystem::exists(folder)) return;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    CHECK_FALSE(holds(entry.path().filename().native(), ".lora-"));
}

void check_near(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-4));
}

}  // namespace

TEST_CASE("program: an NPU that can't be used is one sentence that says why, before anything is written") {
  const Subject s;
  const auto words = s.words();
  io::create_folders(s.temp / "empty");
  for (const char* folder : {"runtime", "operators"}) {
    io::create_folders(s.temp / folder);
    std::filesystem::create_symlink(io::Path(LORA_STAND_IN) / "libascendcl.so", s.temp / folder / "libascendcl.so");
  }
  std::filesystem::create_symlink(io::Path(LORA_STAND_IN) / "libnnopbase.so", s.temp / "operators" / "libnnopbase.so");
  const auto in = [&](const char* folder) { return Variables{{"LORA_ASCEND_LIBRARIES", (s.temp / folder).native()}}; };
  check_error(words, in("empty"), 1, "[ascend] there is no toolkit to run on an NPU with: ",
              "cannot open shared object file: No such file or directory; install driver and toolkit (CANN) and source "
              "its set_env.sh, or use device cpu");
  check_error(words, {{"LORA_ASCEND_LIBRARIES", LORA_OLD_TOOLKIT}}, 1, "[ascend] the toolkit can't be used: ",
              "/libascendcl.so has no function aclrtGetVersion; install driver and toolkit of one release");
  check_error(words, in("runtime"), 1,
              "[ascend] the toolkit has no operators: ", "; install its operator packages for this kind of NPU");
  check_error(words, in("operators"), 1, "[ascend] ", "/libnnopbase.so lacks operators that nothing stands in for: Mm");
  check_error(words, {{"STAND_IN_INIT_ERROR", "507899"}}, 1, "[ascend] the toolkit can't be used: ",
              "libascendcl.so can't begin: error 507899 (E507899: aclInit: the driver does not answer)");
  check_error(words, {{"STAND_IN_DEVICES", "-1"}}, 1, "[ascend] the runtime can't count NPUs: error 507899 (",
              "the driver does not answer); npu-smi info shows whether the driver works");
  check_error(words, {{"STAND_IN_DEVICES", "0"}}, 1, "[ascend] there is no NPU 0: the runtime counts 0; npu-smi info");
  check_error(words, {{"STAND_IN_SET_DEVICE_ERROR", "0"}}, 1, "[ascend] NPU 0 can't be used: error 507899 (",
              "; npu-smi info shows its health and who uses it");
  check_error(words, {{"STAND_IN_MISSING_KERNELS", "1"}}, 1, "[ascend] NPU 0: the operator ",
              "; install the toolkit's operator package for this kind of NPU");
  check_error(words, {{"STAND_IN_FAIL_ALLOCATIONS_FROM", "1"}}, 1, "[ascend] NPU 0: no memory for work that grows");
  check_error(words, {{"STAND_IN_MEMORY_BYTES", "4194304"}}, 1,
              "[ascend] NPU 0 is out of memory: ", " are free on the card: error 207001 (");
  check_error(words, {{"LORA_ASCEND_WITHOUT", "Mm"}}, 1, "[ascend] ", "Mm (left out by LORA_ASCEND_WITHOUT)");
  check_error(s.words({"--device=ascend:99"}), {}, 1, "[ascend] there is no NPU 99: the runtime counts 2; ");
  check_error(s.words({"--device=auto", "--device_type=ascend910b3"}), {{"LORA_ASCEND_LIBRARIES", ""}}, 1,
              "key device_type: given ascend910b3, but no Ascend toolkit can be opened: ");
  check_error(s.words({"--device_type=nonsense"}), {}, 1,
              "key device_type: given nonsense, but the NPUs here are Ascend910B3");
  check_error(s.words({"--device_type=ascend910b3"}), {{"STAND_IN_SOC", "none"}}, 1,
              "key device_type: given ascend910b3, but the NPUs here don't tell their kind");
  // After the two that copies go by.
  check_error(
      s.words({"--offload=all"}), {{"STAND_IN_FAIL_HOST_ALLOCATIONS_FROM", "3"}}, 1, "key offload: ",
      " of page-locked memory, to stream the layers, can't be had: [ascend] NPU 0: the host gives no page-locked "
      "memory, ");
  // What the environment or a key says and can't be.
  check_error(words, {{"LOCAL_RANK", "x"}}, 2, "the environment's LOCAL_RANK is 'x'; expected a number from 0 on");
  check_error(words, {{"LOCAL_RANK", "2"}}, 2, "the environment's LOCAL_RANK is 2, but the runtime counts 2 NPUs");
  check_error(s.words({"--device=ascend:1,0"}), {{"LOCAL_RANK", "2"}}, 2,
              "key device: given 2 NPUs, but LOCAL_RANK is 2");
  check_error(s.words({"--device=ascend:0,1"}), {}, 2,
              "key device: given 2 NPUs, one for each process, but no launcher");
  check_error(words, {{"WORLD_SIZE", "2"}}, 2, "the environment's WORLD_SIZE is 2, but no RANK is set");
  for (const char* value : {"abc", "-1", "0"})
    check_error(
        words, {{"LORA_ASCEND_TIMEOUT", value}}, 2,
        concat("the environment's LORA_ASCEND_TIMEOUT is '", value, "'; expected whole seconds from 1 to 2147483"));
  check_error(words, {{"LORA_ASCEND_WITHOUT", "NoSuchOperator"}}, 2,
              "the environment's LORA_ASCEND_WITHOUT names 'NoSuchOperator', which is no operator");
  CHECK_FALSE(std::filesystem::exists(s.temp / "run"));
}

TEST_CASE("program: device auto takes the CPU where no NPU can be used, and says so to who has a toolkit") {
  const Subject s;
  io::create_folders(s.temp / "empty");
  const auto check = [&](const Variables& variables, const std::string& warning) {
    const std::string environment = listed(variables);
    CAPTURE(environment);
    const auto outcome = run(s.words({"--device=auto", "--max_steps=1", "--overwrite_output_dir=true"}), variables);
    CAPTURE(outcome.errors);
    CHECK(outcome.status == 0);
    CHECK(holds(io::read_file(s.temp / "run" / "environment_info.txt"), "device: cpu"));
    CHECK(holds(outcome.errors, "device auto") == !warning.empty());
    if (!warning.empty()) CHECK(holds(outcome.errors, "device auto: " + warning));
    if (!warning.empty()) CHECK(holds(outcome.errors, "; computing on the CPU ('lora doctor' tells more)\n"));
  };
  check({{"LORA_ASCEND_LIBRARIES", ""}}, "");  // where the system looks, which has none
  check({{"LORA_ASCEND_LIBRARIES", (s.temp / "empty").native()}}, "no Ascend toolkit can be opened: ");
  check({{"LORA_ASCEND_LIBRARIES", LORA_OLD_TOOLKIT}}, "there is an Ascend toolkit, but it can't be used: ");
  check({{"STAND_IN_INIT_ERROR", "507899"}}, "there is an Ascend toolkit, but it can't be used: ");
  check({{"STAND_IN_DEVICES", "0"}}, "there is an Ascend toolkit, but no NPU");
  check({{"LORA_ASCEND_WITHOUT", "Amax"}}, "there is an Ascend toolkit, but it lacks operators: Amax");
  const auto outcome = run(s.words({"--device=auto", "--overwrite_output_dir=true"}));
  CHECK(outcome.status == 0);
  CHECK(holds(io::read_file(s.temp / "run" / "environment_info.txt"), "device: Ascend910B3, NPU 0"));
}

TEST_CASE("program: a run on an NPU that fails goes on from its last checkpoint to the bits of an undisturbed one") {
  const Subject s;
  REQUIRE(run(s.words({}, "undisturbed")).status == 0);
  const std::string expected = s.adapter("undisturbed");
  const auto check = [&](const Variables& variables, const std::vector<std::string>& more, const std::string& begin,
                         const std::string& part) {
    check_error(s.words(more), variables, 1, begin, part);
    check_no_temporaries(s.temp / "run");
    CHECK(std::filesystem::exists(s.temp / "run" / "checkpoints"));
    auto words = s.words(more);
    words.push_back("--resume_from_checkpoint=auto");
    const auto outcome = run(words);
    CAPTURE(outcome.errors);
    CHECK(outcome.status == 0);
    CHECK(holds(outcome.errors, "resuming from "));
    CHECK(s.adapter() == expected);
    std::filesystem::remove_all(s.temp / "run");
  };
  if (test::effort(true, false, "program: an NPU that fails, without offload or profile")) {
    check({{"STAND_IN_KERNEL_ERROR_AT", "700"}}, {}, "[ascend] NPU 0", ": exception of a kernel)");
    check({{"STAND_IN_LOSE_DEVICE_AT", "700"}}, {}, "[ascend] NPU 0", "the device is lost)");
  }
  check({{"STAND_IN_LOSE_DEVICE_AT", "700"}}, {"--profile=true"}, "[ascend] NPU 0", "the device is lost)");
  check({{"STAND_IN_KERNEL_ERROR_AT", "700"}}, {"--offload=params"}, "[ascend] NPU 0", ": exception of a kernel)");
  check({{"STAND_IN_HANG_AT", "700"}, {"LORA_ASCEND_TIMEOUT", "1"}}, {},
        "[ascend] NPU 0 has not ended its work within 1 s: error 50704",
        "; LORA_ASCEND_TIMEOUT sets how many seconds are waited");
}

TEST_CASE("program: memory that can't grow, and an operator less, do not keep a run from training") {
  const Subject s;
  REQUIRE(run(s.words()).status == 0);
  const std::string expected = s.adapter();
  const auto again = [&](const Variables& variables, const std::vector<std::string>& more = {}) {
    auto words = s.words(more);
    words.push_back("--overwrite_output_dir=true");
    const auto outcome = run(words, variables);
    CAPTURE(outcome.errors);
    CHECK(outcome.status == 0);
    CHECK_FALSE(holds(outcome.errors, "stand-in"));
    return s.adapter();
  };
  const std::vector<double> losses = s.losses();
  CHECK(again({{"STAND_IN_VMM", "0"}}) == expected);
  CHECK(again({{"STAND_IN_FAIL_ALLOCATION", "4"}}) == expected);
  if (test::effort(true, false, "program: an NPU chosen by a launcher, by its number, and without determinism")) {
    CHECK(again({{"LOCAL_RANK", "1"}, {"WORLD_SIZE", "1"}}) == expected);
    CHECK(again({}, {"--device=ascend:1", "--device_type=ascend910b3", "--full_determinism=true"}) == expected);
    (void)again({}, {"--full_determinism=false"});
    check_near(s.losses(), losses);
  }
  (void)again({{"LORA_ASCEND_WITHOUT", "RotaryPositionEmbedding"}});
  check_near(s.losses(), losses);
}

TEST_CASE("program: a run goes on on an NPU from where it was on the CPU, and the other way round") {
  const Subject s;
  const std::vector<std::string> cpu = {"--device=cpu", "--dtype=float32"}, npu = {"--dtype=float32"};
  REQUIRE(run(s.words(cpu, "whole")).status == 0);
  const auto check = [&](std::vector<std::string> first, std::vector<std::string> then) {
    first.push_back("--max_steps=2");
    REQUIRE(run(s.words(first)).status == 0);
    then.push_back("--resume_from_checkpoint=auto");
    const auto outcome = run(s.words(then));
    CAPTURE(outcome.errors);
    CHECK(outcome.status == 0);
    CHECK(holds(outcome.errors, "step 2"));
    check_near(s.losses(), s.losses("whole"));
    std::filesystem::remove_all(s.temp / "run");
  };
  check(cpu, npu);
  check(npu, cpu);
}

TEST_CASE("program: eval and generate compute on an NPU what they do on the CPU, and say what fails there") {
  test::TempFolder temp;
  test::write_talking_model(temp / "model");
  io::write_file(temp / "data.jsonl", std::string_view("{\"instruction\": \"hello\", \"output\": \"good day\"}\n"
                                                       "{\"instruction\": \"count\", \"output\": \"one two\"}\n"));
  const auto words = [&](const char* command, const char* device, std::vector<std::string> more) {
    more.insert(more.begin(), {command, concat("--device=", device), "--threads=1", "--template=chatml",
                               "--dtype=float32", "--model_name_or_path=" + (temp / "model").native()});
    return more;
  };
  const auto eval = [&](const char* device) {
    return words("eval", device,
                 {"--dataset=" + (temp / "data.jsonl").native(), "--output_dir=" + (temp / device).native()});
  };
  const auto generate = [&](const char* device) {
    return words("generate", device, {"--prompt=hello", "--max_new_tokens=8"});
  };
  for (const char* device : {"cpu", "ascend"}) REQUIRE(run(eval(device)).status == 0);
  const auto loss = [&](const char* device) {
    return io::read_json(temp / device / "evaluation_results.json").at("loss").get<double>();
  };
  CHECK(loss("ascend") == doctest::Approx(loss("cpu")).epsilon(1e-5));
  const auto said = run(generate("ascend"));
  CHECK(said.status == 0);
  CHECK(said.output.size() > 2);
  CHECK(said.output == run(generate("cpu")).output);
  for (const auto& command : {eval("ascend"), generate("ascend")}) {
    check_error(command, {{"STAND_IN_KERNEL_ERROR_AT", "20"}}, 1, "[ascend] NPU 0", "exception of a kernel)");
    check_error(command, {{"STAND_IN_SET_DEVICE_ERROR", "0"}}, 1, "[ascend] NPU 0 can't be used: error 507899 (");
    check_error(command, {{"LORA_ASCEND_TIMEOUT", "0"}}, 2, "the environment's LORA_ASCEND_TIMEOUT is '0'");
  }
  check_no_temporaries(temp.path());
}

}  // namespace ascend_faults_program_test
