#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "lora/io/formats/json.hpp"
#include "support/effort.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/random_model.hpp"
#include "support/random_tokens.hpp"
#include "support/temp_folder.hpp"

namespace doctor_test {

using namespace lora;

namespace {

/// The whole check on the stand-in, which tells on standard error what is done against the vendor's rules.
struct FullCheck {
  test::TempFolder temp;
  io::Path report = temp / "report.md";
  test::Environment libraries{"LORA_ASCEND_LIBRARIES", LORA_STAND_IN}, delay{"STAND_IN_DELAY_US", "0"},
      verbose{"STAND_IN_VERBOSE", "1"};

  test::Outcome run(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"doctor", "--full", "--device=ascend", "--output_file=" + report.native()});
    return test::run_program(LORA_PROGRAM, more);
  }
};

/// The lines of a text that hold a word.
std::vector<std::string> lines_with(const std::string& text, std::string_view word) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    if (std::string line = text.substr(begin, end - begin); line.find(word) != line.npos)
      lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

TEST_CASE("program: doctor tells a line for each part, and the same as JSON") {
  const test::Environment libraries("LORA_ASCEND_LIBRARIES", LORA_STAND_IN);
  const auto npus = test::run_program(LORA_PROGRAM, {"doctor", "--device=auto"});
  CHECK(npus.status == 0);
  CHECK(test::holds(npus.output, "\nok      NPU 1            Ascend910B3, 20 cube"));
  const auto lines = test::run_program(LORA_PROGRAM, {"doctor", "--device=cpu"});
  for (const char* of_npus : {"NPU 1", "NPU toolkit"}) CHECK_FALSE(test::holds(lines.output, of_npus));
  CHECK(lines.status == 0);
  CHECK(lines.errors.empty());
  const auto report = test::run_program(LORA_PROGRAM, {"doctor", "--json", "--device=cpu"});
  CHECK(report.status == 0);
  const io::Json json = io::parse_json(report.output, "doctor");
  CHECK(json.at("works") == true);
  CHECK(json.at("device") == "cpu");
  CHECK(json.at("findings").size() > 6);
  for (const io::Json& finding : json.at("findings")) {
    const auto part = finding.at("part").get<std::string>(), state = finding.at("state").get<std::string>();
    CAPTURE(part);
    CHECK(test::holds("\n" + lines.output, concat("\n", state, std::string(8 - state.size(), ' '), part, " ")));
    CHECK(finding.at("advice").is_null() == (state == "ok"));
    if (!finding.at("advice").is_null()) CHECK(test::holds(lines.output, finding.at("advice").get<std::string>()));
  }
  const io::Json& mpi = json.at("findings").at(json.at("findings").size() - 2);
  CHECK(mpi.at("part") == "MPI");
  const std::string known = mpi.at("found").get<std::string>();
#if defined(LORA_WITH_MPI)
  CHECK(mpi.at("state") == "ok");
  CHECK(std::regex_match(
      known, std::regex("(Open MPI v|MPICH Version: *)[^,\n\t]+, interface [3-9]\\.[0-9], begun beside threads as "
                        "MPI_THREAD_FUNNELED")));
#else
  CHECK(mpi.at("state") == "note");
  CHECK(known == "built without MPI: several processes train together on NPUs alone");
#endif
  // Of chat's lines it knows who edits them, or how somebody would.
  const io::Json& last = json.at("findings").back();
  CHECK(last.at("part") == "line editing");
  if (last.at("state") == "ok") {
    CHECK(last.at("found") == "libedit");
    CHECK(last.at("advice").is_null());
  } else {
    CHECK(last.at("state") == "note");
    CHECK(last.at("found") == "none: chat reads lines as the terminal gives them");
    CHECK(last.at("advice") == "install libedit (Debian: libedit-dev) and build again");
  }
  const auto of_kind = [](const std::string& kind) {
    return test::run_program(LORA_PROGRAM, {"doctor", "--device=ascend", "--device_type=" + kind});
  };
  CHECK(of_kind("ascend910b3").status == 0);
  CHECK(test::holds(of_kind("ascend910b3").output, "\nok      NPU kind         ascend910b3\n"));
  CHECK(of_kind("ascend910a").status == 1);
  CHECK(
      test::holds(of_kind("ascend910a").output, "\nmissing NPU kind         key device_type: given ascend910a, but "));
  const auto wrong = test::run_program(LORA_PROGRAM, {"doctor", "--dataset=x"});
  CHECK(wrong.status == 2);
  CHECK(test::holds(wrong.errors, "--dataset"));
}

TEST_CASE(
    "program: a newer toolkit's libraries are used without the old one, which would keep its operators from working") {
  const test::Environment libraries("LORA_ASCEND_LIBRARIES", LORA_STAND_IN_SPLIT), verbose("STAND_IN_VERBOSE", "1");
  const auto found = test::run_program(LORA_PROGRAM, {"doctor", "--device=ascend"});
  CHECK(found.status == 0);
  const auto lines = lines_with(found.output, "NPU operators");
  REQUIRE(lines.size() == 1);
  for (const char* name : {"libnnopbase.so", "libopapi_math.so", "libopapi_nn.so", "libopapi_transformer.so"})
    CHECK(test::holds(lines[0], concat(LORA_STAND_IN_SPLIT "/", name)));
  CHECK_FALSE(test::holds(lines[0], "libopapi.so"));
  const test::TempFolder temp;
  test::write_random_model(temp / "model", {});
  test::write_tokens(temp / "train.jsonl", 8, 1);
  const auto train = [&](const std::string& output) {
    return test::run_program(
        LORA_PROGRAM, {"train", "--device=ascend", "--max_steps=1", "--lora_rank=2",
                       "--model_name_or_path=" + (temp / "model").native(),
                       "--dataset=" + (temp / "train.jsonl").native(), "--output_dir=" + (temp / output).native()});
  };
  const auto good = train("good");
  CAPTURE(good.errors);
  CHECK(good.status == 0);
  CHECK_FALSE(test::holds(good.errors, "stand-in"));
  // Together with the old one, which something else in the process has opened, no operator works.
  const test::Environment both("LD_PRELOAD", LORA_STAND_IN "/libopapi.so");
  const auto refused = train("refused");
  CHECK(refused.status == 1);
  CHECK(test::holds(refused.errors, "libopapi.so is open together with libopapi_math.so, libopapi_nn.so"));
}

TEST_CASE("program: doctor --full checks all kernels of an NPU and a training, and writes a report") {
  if (!test::effort(true, false, "doctor --full: all kernels, which tests of folder doctor run one by one")) return;
  const FullCheck check;
  const auto outcome = check.run({"--json"});
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 0);
  CHECK_FALSE(test::holds(outcome.errors, "fault"));
  const std::string text = io::read_file(check.report);
  CHECK(text.starts_with("# lora doctor's report on Ascend910B3, NPU 0: "));
  CHECK(test::holds(text.substr(0, text.find('\n')), " checks, all ok"));
  for (const char* fact :
       {"\n| CANN | 8.1.RC1 |", "\n| LORA_ASCEND_LIBRARIES | ", "\n| bits of a second run | the same |",
        "\n| float32 results of bfloat16 products | written |",
        "\n| order of dropout's bits in float16 | as the contract has it |", "\n| memory afterward | ",
        "\n| work memory | grows by virtual memory"})
    CHECK_MESSAGE(test::holds(text, fact), fact);
  CHECK(lines_with(text, "**").empty());
  // Each part is told when it begins, in this order.
  std::vector<std::string> parts, expected = {"what the device is"};
  const std::string types[] = {"float32", "bfloat16", "float16"};
  for (const std::string& type : types) expected.push_back("arithmetic in " + type);
  for (const std::string& type : types)
    for (const char* family : {"products", "low rank", "norm", "rope", "attention", "activation", "embedding", "loss",
                               "optimizer", "elementwise", "reduce", "quantize", "non-finite", "streams"})
      expected.push_back(family + (" in " + type));
  expected.push_back("training on the processors");
  for (const std::string& type : types) expected.push_back("training in " + type);
  for (const char* offload : {"params", "optimizer", "all"})
    expected.push_back(concat("training in bfloat16, offload ", offload));
  expected.push_back("times");
  for (const std::string& type : types) expected.push_back("times in " + type);
  for (const char* last : {"copies and launches", "memory afterward"}) expected.emplace_back(last);
  for (const std::string& line : lines_with(outcome.errors, "checking "))
    parts.push_back(line.substr(line.find("checking ") + 9));
  CHECK(parts == expected);
  const std::regex memory(R"(\n\| memory before \| \d+\.\d+ [MG]iB of \d+\.\d+ [MG]iB are free \|\n)"),
      timed(R"(\n\nMedians of 5 launches at \d+ rows and columns, heads of 128, one sequence\.\n\n)");
  CHECK(std::regex_search(text, memory));
  CHECK(std::regex_search(text, timed));

  const io::Json report = io::parse_json(outcome.output, "doctor").at("report");
  CHECK(report.at("good") == true);
  // Three types have the same kernels and outputs.
  const io::Json& kernels = report.at("kernels");
  REQUIRE(kernels.size() % 3 == 0);
  const std::size_t of_a_type = kernels.size() / 3;
  CHECK(of_a_type > 60);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    CHECK(kernels[i].at("type") == types[i / of_a_type]);
    for (const char* name : {"family", "kernel", "output"})
      CHECK(kernels[i].at(name) == kernels[i % of_a_type].at(name));
  }
  for (const io::Json& row : report.at("kernels")) CHECK(row.at("state") == "ok");
  REQUIRE(report.at("training").size() == 6);
  const auto row_of = [&](std::string_view type) {
    const auto& rows = report.at("training");
    return *std::find_if(rows.begin(), rows.end(), [&](const io::Json& row) { return row.at("type") == type; });
  };
  const io::Json plain = row_of("bfloat16"), streamed = row_of("bfloat16, offload params"),
                 host_steps = row_of("bfloat16, offload optimizer"), all = row_of("bfloat16, offload all");
  CHECK(streamed.at("losses") == plain.at("losses"));
  CHECK(streamed.at("norms") == plain.at("norms"));
  CHECK(all.at("losses") == host_steps.at("losses"));
  CHECK(all.at("losses") != plain.at("losses"));
  CHECK(lines_with(text, "| streams | copies and kernels that wait for each other |").size() == 3);
  const auto& reference = report.at("reference").at("losses");
  REQUIRE(reference.size() == 20);
  CHECK(reference.back().get<double>() < 0.9 * reference.front().get<double>());
  for (const io::Json& row : report.at("training")) {
    CHECK(row.at("losses").size() == 20);
    CHECK(row.at("losses") != reference);  // they are its own
    CHECK(row.at("tokens_per_second") > 0);
    CHECK(row.at("peak_bytes") > 0);
  }
  CHECK(report.at("times").size() > 60);
  for (const io::Json& row : report.at("times")) {
    CAPTURE(row.at("kernel").get<std::string>());
    CHECK(row.at("words") == "");
    CHECK(row.at("seconds") > 0);
    CHECK(row.at("bytes") > 0);
    CHECK((row.at("flops") > 0) ==
          (row.at("family") == "products" || row.at("family") == "low rank" || row.at("family") == "attention"));
  }
  CHECK(report.at("speeds").size() == 6);
}

TEST_CASE(
    "program: doctor --full tells of a kernel that fails, of streams that don't wait and of what stands in for an "
    "operator, takes the place of its own report only, and exits with 1") {
  if (!test::effort(true, false, "doctor --full: a kernel that fails, streams that don't wait, an operator less"))
    return;
  const FullCheck check;
  const test::Environment error("STAND_IN_KERNEL_ERROR_AT", "60"), ignored("STAND_IN_IGNORE_WAITS", "1"),
      silent("STAND_IN_VERBOSE", "0"), without("LORA_ASCEND_WITHOUT", "RotaryPositionEmbedding");
  io::write_file(check.report, std::string_view("# notes of mine\n"));
  const auto refused = check.run();
  CHECK(refused.status == 2);
  CHECK(refused.errors == "error: key output_file: given " + check.report.native() +
                              ", which no doctor wrote; hint: give another file, or move that away\n");
  CHECK(io::read_file(check.report) == "# notes of mine\n");
  io::write_file(check.report, std::string_view("# lora doctor's report on something else\n"));
  const auto outcome = check.run();
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 1);
  const std::string text = io::read_file(check.report);
  const auto failed = lines_with(text, "**failed**");
  REQUIRE(failed.size() == 1);
  CHECK(test::holds(failed[0], " | | | | | **failed**: [ascend] NPU 0: "));
  CHECK(test::holds(failed[0], "507015"));
  CHECK(test::holds(outcome.output, ": failed: "));
  // It goes on.
  CHECK(test::holds(text, "\n## Kernels in float16\n"));
  CHECK(test::holds(text, "\n## Times\n"));
  const auto rows = lines_with(text, "| streams | copies and kernels that wait for each other |");
  CHECK(rows.size() == 3);
  for (const std::string& row : rows) CHECK(test::holds(row, "**too far**: element "));
  for (const std::string& row : lines_with(text, "**too far**"))
    CHECK_MESSAGE((row.starts_with("| streams | ") || test::holds(row, "offload")), row);
  CHECK(test::holds(outcome.output,
                    "\n- training in bfloat16, offload params: too far: step 1 has other bits than in bfloat16\n"));
  CHECK(test::holds(text, "\n| without RotaryPositionEmbedding | done by Mul and InplaceAddcmul |"));
  const auto rotated = lines_with(text, "| rope | forward | y |");
  CHECK(rotated.size() == 3);
  for (const std::string& row : rotated) CHECK_MESSAGE(row.ends_with("| ok |"), row);
  CHECK(test::holds(outcome.output, "\nthe report is " + check.report.native() + "\n"));
  // Nothing is left beside it.
  CHECK(std::distance(std::filesystem::directory_iterator(check.temp.path()), {}) == 1);
}

TEST_CASE("program: doctor --full leaves a report even if it dies") {
  const FullCheck check;
  test::Process process(LORA_PROGRAM,
                        std::vector<std::string>{"doctor", "--full", "--device=cpu", "--threads=1",
                                                 "--output_file=" + check.report.native()},
                        {});
  for (int i = 0; i < 6000 && !io::is_there(check.report); ++i) usleep(10000);
  process.send(SIGKILL);
  CHECK(process.wait() == 128 + SIGKILL);
  const std::string text = io::read_file(check.report);
  CHECK(text.starts_with("# lora doctor's report on cpu, 1 thread"));
  CHECK(test::holds(text.substr(0, text.find('\n')), ": not finished: ended during "));
}

TEST_CASE("program: doctor's lines stand in columns, with what to do below what is missing") {
  const test::Environment nowhere("LORA_ASCEND_LIBRARIES", "/nowhere");
  const std::vector<std::string> words = {"doctor", "--device=ascend", "--threads=1"};
  const auto outcome = test::run_program(LORA_PROGRAM, words);
  CHECK(outcome.status == 1);
  auto more = words;
  more.push_back("--json");
  const io::Json json = io::parse_json(test::run_program(LORA_PROGRAM, more).output, "doctor");
  CHECK(json.at("device") == "ascend");
  CHECK(json.at("works") == false);
  CHECK_FALSE(json.contains("report"));
  const auto padded = [](std::string word, std::size_t width) {
    word.resize(std::max(word.size(), width), ' ');
    return word;
  };
  // What is found of memory changes from one to the other.
  const std::string whole = outcome.output;
  std::size_t at = 0, missing = 0;
  for (const io::Json& finding : json.at("findings")) {
    const std::string begin = padded(finding.at("state"), 8) + padded(finding.at("part"), 17);
    missing += finding.at("state") == "missing";
    CAPTURE(begin);
    CHECK(whole.compare(at, begin.size(), begin) == 0);
    if (finding.at("part") == "NPU toolkit")
      CHECK(whole.compare(at + begin.size(), finding.at("found").get<std::string>().size() + 1,
                          finding.at("found").get<std::string>() + "\n") == 0);
    at = whole.find('\n', at) + 1;
    if (finding.at("advice").is_null()) continue;
    const std::string line = std::string(25, ' ') + "→ " + finding.at("advice").get<std::string>() + "\n";
    CHECK(whole.compare(at, line.size(), line) == 0);
    at += line.size();
  }
  CHECK(at == whole.size());
  CHECK(missing > 0);
}

TEST_CASE("program: doctor --full writes what it found of the host and where its report is, without a device too") {
  const FullCheck check;
  const test::Environment nowhere("LORA_ASCEND_LIBRARIES", check.temp.path().native()), mark("LORA_TEST_MARK", "a|b");
  const std::string folder = check.temp.path().native(),
                    program = "cd " + test::shell_word(folder) + " && " LORA_PROGRAM;
  const auto outcome = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"doctor", "--full", "--device=ascend"});
    return test::run_program(program, more);
  };
  const auto first = outcome({"--threads=1"});
  CHECK(first.status == 1);
  CHECK(first.output.ends_with("\nthe report is doctor_report.md\n"));
  const std::string text = io::read_file(check.temp / "doctor_report.md");
  CHECK(test::holds(text, "\n\n## Found\n\n| | |\n|---|---|\n| build | "));
  CHECK(test::holds(text, "\n| NPU toolkit | missing: none: "));
  CHECK(test::holds(text, "\n## Host\n\n| | |\n|---|---|\n| time | "));
  CHECK(test::holds(text, "\n| threads | 1 of "));
  CHECK(test::holds(text, "\n| LORA_TEST_MARK | a\\|b |\n"));
  CHECK(outcome({"--threads=2"}).status == 1);
  CHECK(test::holds(io::read_file(check.temp / "doctor_report.md"), "\n| threads | 2 of "));
  const auto report = io::parse_json(outcome({"--json"}).output, "doctor");
  CHECK(report.at("works") == false);
  CHECK(report.at("report").at("good") == false);
  CHECK(report.at("report").at("device") == "a device that can't be opened");
  CHECK(report.at("report").at("problems").size() == 1);
  CHECK(report.at("report").at("environment").at("LORA_TEST_MARK") == "a|b");
  CHECK(report.at("findings").size() > 6);
  // A folder is no report's place, and a pipe gets the whole.
  const auto refused = outcome({"--output_file=" + folder});
  CHECK(refused.status == 2);
  CHECK(refused.output.empty());
  CHECK(refused.errors == "error: key output_file: given " + folder +
                              ", which no doctor wrote; hint: give another file, or move that away\n");
  const std::string piped = test::run_program("bash", {"-c", "cd " + folder +
                                                                 " && mkfifo pipe && { cat pipe & " LORA_PROGRAM
                                                                 " doctor --full --device=ascend --output_file=pipe "
                                                                 ">/dev/null; wait; }"})
                                .output;
  CHECK(piped.starts_with("# lora doctor's report on a device that can't be opened: 1 of 1 checks are not ok\n"));
}

TEST_CASE("program: doctor --full tells that there is no such device") {
  const FullCheck check;
  const test::Environment nowhere("LORA_ASCEND_LIBRARIES", check.temp.path().native());
  const auto outcome = check.run();
  CHECK(outcome.status == 1);
  CHECK(test::holds(outcome.output, "\nmissing NPU toolkit"));
  CHECK(test::holds(outcome.output, "\n1 of 1 checks are not ok\n- [ascend] there is no toolkit"));
  CHECK(io::read_file(check.report)
            .starts_with("# lora doctor's report on a device that can't be opened: 1 of 1 checks are not ok\n"));
}

TEST_CASE("program: doctor tells of each NPU, the toolkit and its operators what is there, and what helps where not") {
  const test::Environment libraries("LORA_ASCEND_LIBRARIES", LORA_STAND_IN);
  struct Found {
    std::string state, found, advice;
  };
  const auto finding = [](const char* part, const char* variable, const std::string& value,
                          const std::string& device = "ascend") -> Found {
    const test::Environment set(variable, value);
    const auto outcome = test::run_program(LORA_PROGRAM, {"doctor", "--json", "--threads=1", "--device=" + device});
    const io::Json json = io::parse_json(outcome.output, "doctor");
    for (const io::Json& one : json.at("findings"))
      if (one.at("part") == part)
        return {one.at("state"), one.at("found"),
                one.at("advice").is_null() ? "" : one.at("advice").get<std::string>()};
    return {"", "no such part", ""};
  };
  const auto check = [](const Found& found, const char* state, const std::string& text, const std::string& advice) {
    CHECK(found.state == state);
    CHECK(found.found == text);
    CHECK(found.advice == advice);
  };
  const std::string runtime = LORA_STAND_IN "/libascendcl.so", interface = runtime + ", interface 1.13.0",
                    operators = " in " LORA_STAND_IN "/libnnopbase.so, " LORA_STAND_IN "/libopapi.so",
                    counts = "npu-smi info lists what the driver sees; ASCEND_RT_VISIBLE_DEVICES may hide devices";
  const char* const none = "STAND_IN_DELAY_US";
  check(finding("NPU toolkit", none, "0"), "ok", interface, "");
  check(finding("NPU toolkit", "STAND_IN_DEVICES", "0"), "missing", interface + ", which finds no NPU", counts);
  check(finding("NPU toolkit", "STAND_IN_DEVICES", "0", "auto"), "note", interface + ", which finds no NPU", counts);
  check(finding("NPU toolkit", "STAND_IN_DEVICES", "-1"), "missing",
        interface + ", which can't count NPUs: error 507899 (E507899: aclrtGetDeviceCount: the driver does not answer)",
        counts);
  check(finding("NPU 0", "STAND_IN_DEVICES", "0"), "", "no such part", "");
  check(finding("NPU toolkit", "STAND_IN_INIT_ERROR", "507899"), "missing",
        runtime + " can't begin: error 507899 (E507899: aclInit: the driver does not answer)",
        "install driver and toolkit of one release (CANN 8.1 or newer)");
  const Found nothing = finding("NPU toolkit", "LORA_ASCEND_LIBRARIES", "/nowhere", "auto");
  CHECK(nothing.state == "note");
  CHECK(nothing.found.starts_with("none: "));
  CHECK(nothing.advice.starts_with("where there are Ascend NPUs: install driver and toolkit (CANN)"));

  const std::string card = "Ascend910B3, 20 cube and 40 vector cores, 2.0 GiB of 2.0 GiB are free";
  for (const char* part : {"NPU 0", "NPU 1"}) check(finding(part, none, "0"), "ok", card, "");
  check(finding("NPU 2", none, "0"), "", "no such part", "");
  check(finding("NPU 0", "STAND_IN_SET_DEVICE_ERROR", "0"), "missing",
        "can't be used: error 507899 (E507899: aclrtSetDevice: device 0 does not start)",
        "npu-smi info shows its health and who uses it; a card serves one container at a time");
  check(finding("NPU 1", "STAND_IN_SET_DEVICE_ERROR", "0"), "ok", card, "");
  CHECK(finding("NPU 1", "STAND_IN_SET_DEVICE_ERROR", "1").state == "note");
  check(finding("NPU choice", none, "0"), "ok", "NPU 0", "");
  check(finding("NPU choice", none, "0", "ascend:1"), "ok", "NPU 1", "");
  check(finding("NPU choice", none, "0", "ascend:2"), "missing", "NPU 2 is not there: the runtime counts 2", counts);
  check(finding("NPU choice", "LOCAL_RANK", "5"), "missing",
        "the environment's LOCAL_RANK is 5, but the runtime counts 2 NPUs; expected one for each process",
        "train refuses it in the same words");

  check(finding("NPU operators", none, "0"), "ok", "32 of 32" + operators, "");
  check(finding("NPU operators", "LORA_ASCEND_WITHOUT", "RotaryPositionEmbedding"), "ok",
        "31 of 32" + operators +
            "; without RotaryPositionEmbedding (rotary embedding), left out by LORA_ASCEND_WITHOUT, done by Mul and "
            "InplaceAddcmul",
        "");
  const std::string without = "31 of 32" + operators + "; without Mm (products), left out by LORA_ASCEND_WITHOUT",
                    helps = "nothing stands in for Mm (left out by LORA_ASCEND_WITHOUT); CANN 8.1 and newer have them";
  check(finding("NPU operators", "LORA_ASCEND_WITHOUT", "Mm"), "missing", without, helps);
  check(finding("NPU operators", "LORA_ASCEND_WITHOUT", "Mm", "auto"), "note", without, helps);
  CHECK(finding("NPU operators", none, "0", "cpu").found == "no such part");
}

TEST_CASE("program: with device auto an NPU that can't be used is only noted where another device would be taken") {
  const test::Environment libraries("LORA_ASCEND_LIBRARIES", LORA_STAND_IN);
  const auto status = [](const char* variable, const char* value, const char* device) {
    const test::Environment set(variable, value);
    return test::run_program(LORA_PROGRAM, {"doctor", "--threads=1", concat("--device=", device)}).status;
  };
  CHECK(status("STAND_IN_SET_DEVICE_ERROR", "0", "auto") == 1);  // it would be taken, and refused
  CHECK(status("STAND_IN_SET_DEVICE_ERROR", "1", "auto") == 0);
  CHECK(status("LORA_ASCEND_WITHOUT", "Mm", "auto") == 0);
  CHECK(status("LORA_ASCEND_WITHOUT", "Mm", "ascend") == 1);
  CHECK(status("STAND_IN_DEVICES", "0", "auto") == 0);
  CHECK(status("STAND_IN_DEVICES", "0", "cpu") == 0);
}

}  // namespace doctor_test
