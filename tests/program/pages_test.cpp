// The manual page and bash's completion have what --help has.

#include <doctest/doctest.h>

#include <cstdlib>
#include <initializer_list>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/io/files/file.hpp"
#include "lora/settings/keys.hpp"
#include "lora/settings/settings.hpp"
#include "support/effort.hpp"
#include "support/program.hpp"
#include "support/temp_folder.hpp"

namespace pages_test {

using namespace lora;

namespace {

std::string printed(const char* flag) {
  const auto outcome = test::run_program(LORA_PROGRAM, {flag});
  CHECK(outcome.status == 0);
  CHECK(outcome.errors.empty());
  return outcome.output;
}

/// What man reads as orders, taken out again.
std::string shown(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      text += line[i];
    } else if (line[++i] == 'f') {
      ++i;
    } else if (line[i] == 'e') {
      text += '\\';
    } else if (line[i] != '&') {
      text += line[i];
    }
  }
  return text;
}

/// What bash offers for the last of the words of a command line, a word a line.
std::string offered(const std::string& script, std::initializer_list<const char*> words) {
  std::string code = "source " + test::shell_word(script) + "; COMP_WORDS=(lora";
  for (const char* word : words) code += " " + test::shell_word(word);
  code += concat("); COMP_CWORD=", words.size(), "; _lora; printf '%s\\n' \"${COMPREPLY[@]}\"");
  const auto outcome = test::run_program("bash", {"--norc", "-uc", code});
  CHECK(outcome.status == 0);
  CHECK(outcome.errors.empty());
  return outcome.output;
}

}  // namespace

TEST_CASE("program: the manual page has every command and key, with the words of --help, and orders that man knows") {
  const std::string page = printed("--man-page");
  CHECK(page.starts_with(".TH LORA 1 \"\" \"lora " LORA_VERSION "\""));
  std::istringstream lines(page);
  std::string text;
  const std::set<std::string> orders = {".TH", ".ad", ".nh", ".SH", ".SS", ".TP", ".IP"};
  for (std::string line; std::getline(lines, line); text += shown(line) + "\n") {
    CAPTURE(line);
    CHECK_FALSE(line.empty());
    if (line.starts_with('.')) CHECK(orders.contains(line.substr(0, line.find(' '))));
    CHECK_FALSE(line.starts_with('\''));
  }
  for (const auto command : settings::all_commands) {
    const std::string name(settings::name_of(command));
    const std::string help = test::run_program(LORA_PROGRAM, {name, "--help"}).output;
    const std::string does = help.substr(0, help.find('\n'));
    CAPTURE(name);
    CHECK(text.find(concat(".TP\n", std::string_view(name), "\n", std::string_view(does), "\n.IP\nlora ",
                           std::string_view(name))) != text.npos);
  }
  for (const auto& key : settings::keys()) {
    CAPTURE(std::string(key.name));
    std::string commands;
    for (const auto command :
         {settings::train_command, settings::eval_command, settings::generate_command, settings::chat_command,
          settings::merge_command, settings::export_command, settings::tokenize_command, settings::plan_command,
          settings::report_command, settings::doctor_command})
      if (key.commands & command) commands += concat(commands.empty() ? "" : ", ", settings::name_of(command));
    const std::string range = key.choices.empty() ? settings::describe(key.range) : settings::allowed(key);
    const std::string otherwise = settings::default_text(key);
    const std::string type = settings::is_switch(key) ? "" : concat(" ", settings::name_of(settings::type_of(key)));
    CHECK(text.find(concat(".TP\n--", key.name, std::string_view(type), "\n", key.help,
                           std::string_view(range.empty() ? "" : "; " + range),
                           std::string_view(otherwise.empty() ? "" : " (default: " + otherwise + ")"), " [",
                           std::string_view(commands), "]\n")) != text.npos);
  }
  CHECK(text.find(".TP\n--nnodes INT\nMachines; above 1 for NPUs alone (default: 1)\n") != text.npos);
  CHECK(text.find(".TP\n1\nbad data or model, a full disk, no memory, no numbers; plan: it does not fit; doctor: "
                  "something is missing\n.TP\n2\n") != text.npos);
  CHECK(page.find("\n\\&.txt: a text per line") != page.npos);
}

TEST_CASE("program: man finds nothing wrong with the manual page") {
  if (std::system("command -v groff >/dev/null") != 0) {
    test::skipped("groff is not there to read the manual page");
    return;
  }
  const test::TempFolder folder;
  io::write_file(folder / "lora.1", std::string_view(printed("--man-page")));
  const auto outcome = test::run_program("groff", {"-man", "-ww", "-Tutf8", "-z", (folder / "lora.1").native()});
  CHECK(outcome.status == 0);
  CHECK(outcome.errors == "");
}

TEST_CASE("program: bash completes commands, keys and values") {
  const test::TempFolder folder;
  const std::string script = (folder / "lora").native();
  io::write_file(script, std::string_view(printed("--bash-completion")));
  CHECK(offered(script, {""}) ==
        "train\neval\ngenerate\nchat\nmerge\nexport\ntokenize\nplan\nreport\ndoctor\nlaunch\nhelp\n--help\n--version\n"
        "--man-page\n--bash-completion\n");
  CHECK(offered(script, {"t"}) == "train\ntokenize\n");
  CHECK(offered(script, {"help", "ex"}) == "export\n");
  CHECK(offered(script, {"train", "--lora_a"}) == "--lora_alpha\n");
  CHECK(offered(script, {"eval", "--lora_a"}) == "\n");
  CHECK(offered(script, {"train", "--dtype", ""}) == "auto\nfloat32\nbfloat16\nfloat16\n");
  CHECK(offered(script, {"train", "--dtype", "=", "b"}) == "bfloat16\n");
  CHECK(offered(script, {"train", "--dtype", "="}) == "auto\nfloat32\nbfloat16\nfloat16\n");
  CHECK(offered(script, {"train", "--shuffle", ""}) == "true\nfalse\n");
  CHECK(offered(script, {"train", "--use_rslora", ""}) == "auto\ntrue\nfalse\n");
  CHECK(offered(script, {"train", "--lora_target", "q_proj,k"}) == "q_proj,k_proj\n");
  CHECK(offered(script, {"train", "--dataset", "t"}) == "\n");  // a file, which bash finds itself
  CHECK(offered(script, {"launch", "--nproc_per_node", "4", "t"}) == "train\n");
  CHECK(offered(script, {"launch", "--nn"}) == "--nnodes\n");
  CHECK(offered(script, {"launch", "--nproc_per_node", "4", "train", "--zero"}) == "--zero_stage\n");
  CHECK(offered(script, {"generate", "--prompt", "train", "--num_r"}) == "--num_return_sequences\n");
  for (const auto command : settings::all_commands) {
    const std::string name(settings::name_of(command));
    std::string expected = "--config\n";
    for (const auto& key : settings::keys())
      if (key.commands & command) expected += concat("--", key.name, "\n");
    CHECK(offered(script, {name.c_str(), "-"}) == expected + "--help\n");
  }
}

}  // namespace pages_test
