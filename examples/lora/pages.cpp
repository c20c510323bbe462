#include "pages.hpp"

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "help.hpp"
#include "launch.hpp"
#include "lora/core/config.hpp"
#include "lora/core/format.hpp"

// Both are made of what --help prints: the table of keys, the commands and the options of launch.

namespace {

using lora::concat;
using lora::settings::Key;

/// Text for man, which reads '\', and '.' and ''' at the beginning of a line, as orders, and may print '-' as a hyphen.
std::string plain(std::string_view text) {
  std::string page = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) page += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  return page;
}

/// An entry: its name, what stands for a value, and a paragraph.
std::string entry(std::string_view name, std::string_view value, std::string_view text) {
  std::string line = concat(".TP\n\\fB", plain(name), "\\fR");
  if (!value.empty()) line += concat(" \\fI", plain(value), "\\fR");
  return concat(std::string_view(line), "\n", plain(text), "\n");
}

std::vector<const CLI::Option*> options_of(const CLI::App& page) {
  return page.get_options([](const CLI::Option* option) { return option->get_name() != "--help"; });
}

/// The commands that know a key, as words.
std::string commands_of(const Key& key) {
  std::string list;
  for (const CommandText& text : command_texts)
    if (key.commands & text.command) list += concat(list.empty() ? "" : ", ", name_of(text.command));
  return list;
}

std::string names_of_commands(std::string_view between) {
  std::string list;
  for (const CommandText& text : command_texts) list += concat(name_of(text.command), between);
  return list + "launch";
}

/// The words that a key takes, if it takes no others.
std::string values_of(const Key& key) {
  std::string words = may_be_auto(key) ? "auto true false" : is_switch(key) ? "true false" : "";
  for (const std::string_view choice : key.choices) words += concat(words.empty() ? "" : " ", choice);
  return words;
}

constexpr std::string_view completion_code = R"(
_lora() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= choices= begin= i
  # --key=value comes as three words.
  if [[ $word == '=' ]]; then
    word=
  elif [[ $before == '=' ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ " $(_lora_commands) " == *" ${COMP_WORDS[i]} "* ]]; then
      command=${COMP_WORDS[i]}
      [[ $command == launch ]] || break  # behind launch comes another
    fi
  done
  if [[ -z $command ]]; then
    choices="$(_lora_commands) help --help --version --man-page --bash-completion"
  elif [[ $word == -* ]]; then
    choices="$(_lora_keys "$command") --help"
  elif [[ $before == -* ]]; then
    choices=$(_lora_values "$before")
  elif [[ $command == launch ]]; then
    choices=train
  fi
  if [[ $word == *,* && $word != -* ]]; then  # the last of a list
    begin=${word%,*},
    word=${word##*,}
  fi
  COMPREPLY=($(compgen -P "$begin" -W "$choices" -- "$word"))
}
complete -o default -F _lora lora
)";

}  // namespace

std::string manual_page() {
  // Aligned on the left, and no word is divided: names are looked for, and copied.
  std::string page =
      concat(".TH LORA 1 \"\" \"lora ", LORA_VERSION, "\" \"User Commands\"\n.ad l\n.nh\n.SH NAME\nlora \\- ",
             plain("fine-tunes language models, with LoRA or in full"), "\n");
  page += ".SH SYNOPSIS\n\\fBlora\\fR \\fICOMMAND\\fR [\\fB\\-\\-\\fIkey value\\fR ...]\n";
  page += concat(
      ".SH DESCRIPTION\n",
      plain("Keys are given as --key value, --key=value, or in the JSON or YAML file of --config, over which the "
            "command line wins; a switch may stand alone or take true or false; lists are comma-separated. "
            "Results go to standard output, messages to standard error."),
      "\n", entry("-h, --help", "", "The commands; behind a command its keys"), entry("--version", "", "The version"),
      entry("--man-page", "", "This page"),
      entry("--bash-completion", "", "A script by which bash completes commands, keys and values"));
  page += ".SH COMMANDS\n";
  for (const CommandText& text : command_texts)
    page += concat(entry(name_of(text.command), "", text.does), ".IP\n", plain(text.example), "\n");
  page += entry("launch", "", launch_does);
  std::string_view group;
  page += ".SH KEYS\nBehind each key stand the commands that know it.\n";
  for (const Key& key : lora::settings::keys()) {
    if (key.group != group) page += concat(".SS ", group = key.group, "\n");
    page += entry(concat("--", key.name), is_switch(key) ? "" : name_of(type_of(key)),
                  concat(sentence_of(key), " [", commands_of(key), "]"));
  }
  CLI::App launch;
  LaunchOptions options;
  options.describe(launch);
  page += ".SH OPTIONS OF LAUNCH\n";
  for (const CLI::Option* option : options_of(launch))
    page += entry(option->get_name(), option->get_type_name(), option->get_description());
  page += concat(".SH EXIT STATUS\n", entry("0", "", "done"),
                 entry("1", "",
                       "bad data or model, a full disk, no memory, no numbers; plan: it does not fit; doctor: "
                       "something is missing"),
                 entry("2", "", "wrong keys, or a folder that is not empty; nothing was done"),
                 entry("128 + N", "", "ended by signal N; at the first one a training has written a checkpoint"));
  return page;
}

std::string bash_completion() {
  std::string script =
      "# Completes the commands, keys and values of lora in bash; lora --bash-completion prints it.\n\n";
  script += concat("_lora_commands() {\n  echo ", names_of_commands(" "), "\n}\n\n");
  script += "_lora_keys() {\n  case $1 in\n";
  for (const CommandText& text : command_texts) {
    script += concat("    ", name_of(text.command), ") echo --config");
    for (const Key& key : lora::settings::keys())
      if (key.commands & text.command) script += concat(" --", key.name);
    script += " ;;\n";
  }
  script += "    launch) echo";
  CLI::App launch;
  LaunchOptions options;
  options.describe(launch);
  for (const CLI::Option* option : options_of(launch)) script += " " + option->get_name();
  script += " ;;\n  esac\n}\n\n_lora_values() {\n  case $1 in\n";
  for (const Key& key : lora::settings::keys())
    if (const std::string words = values_of(key); !words.empty())
      script += concat("    --", key.name, ") echo ", std::string_view(words), " ;;\n");
  script += concat("  esac\n}\n", completion_code);
  return script;
}
