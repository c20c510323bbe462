#include "command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "help.hpp"
#include "launch.hpp"
#include "lora/core/config.hpp"
#include "lora/core/environment.hpp"
#include "lora/core/error.hpp"
#include "lora/core/log.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/yaml.hpp"
#include "lora/settings/dataset_info.hpp"
#include "lora/settings/deepspeed.hpp"
#include "lora/settings/foreign_keys.hpp"
#include "lora/settings/settings.hpp"
#include "lora/settings/yaml_file.hpp"
#include "pages.hpp"

namespace {

using namespace lora;
using namespace lora::settings;

/// Formats options with their descriptions in a second, wrapped column.
class HelpPage : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* page, std::string name) const override {
    return page->get_parent() == nullptr ? "Usage: lora COMMAND [--key value ...]\n"
                                         : CLI::Formatter::make_usage(page, std::move(name));
  }

  std::string make_option(const CLI::Option* option, bool) const override {
    constexpr std::size_t column = 34, width = 110;
    std::string line = "  " + option->get_name(false, true);
    if (!option->get_type_name().empty()) line += " " + option->get_type_name();
    const std::string text = option->get_description();
    std::string page;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t end = std::min(at + (width - column), text.size());
      if (end < text.size()) end = std::max(text.rfind(' ', end), at + 1);
      if (line.size() + 2 > column) page += std::exchange(line, "") + "\n";
      line.resize(column, ' ');
      page += std::exchange(line, "") + text.substr(at, end - at) + "\n";
      at = text.find_first_not_of(' ', end) == text.npos ? text.size() : text.find_first_not_of(' ', end);
    }
    return page;
  }
};

/// Removes double empty lines.
std::string tidy(std::string page) {
  for (auto at = page.find("\n\n\n"); at != page.npos; at = page.find("\n\n\n", at)) page.erase(at, 1);
  return page;
}

void add_options(CLI::App& page, Command command) {
  page.add_option("--config", CLI::callback_t(),
                  "JSON or YAML file of keys, comments allowed; the command line wins over it")
      ->type_name("FILE")
      ->group("file")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  for (const Key& key : keys()) {
    if (!(key.commands & command)) continue;
    auto* option = page.add_option("--" + std::string(key.name), CLI::callback_t(), sentence_of(key))
                       ->type_name(is_switch(key) ? "" : std::string(name_of(type_of(key))))
                       ->group(std::string(key.group))
                       ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (is_switch(key)) option->expected(0, 1);
  }
}

bool is_yaml(std::string_view path) { return path.ends_with(".yaml") || path.ends_with(".yml"); }

/// Takes the first word without a key that is a file of keys out of those that nothing has used; empty: there is none.
std::string take_config_word(std::vector<std::string>& unused, const std::vector<std::string>& all) {
  const auto found = std::find_if(unused.begin(), unused.end(), [](const std::string& word) {
    return !word.starts_with('-') && (is_yaml(word) || word.ends_with(".json"));
  });
  if (found == unused.end()) return {};
  const std::string word = *found;
  unused.erase(found);
  // As b.json of --dataset a.json b.json it is meant for the list.
  const auto at = std::find(all.rbegin(), all.rend(), word);
  const auto option = std::find_if(at, all.rend(), [](const std::string& other) { return other.starts_with("--"); });
  if (option == all.rend() || is_yaml(word)) return word;
  const std::size_t equals = option->find('=');
  const Key* const key = find_key(option->substr(2, equals == option->npos ? equals : equals - 2));
  if (key != nullptr && is_list(*key) && (equals != option->npos || option != std::next(at)))
    fail<ConfigError>("key ", key->name, ": given ", std::string_view(word),
                      " behind another value, allowed: a list with "
                      "commas; a file of keys stands before the keys, or is the value of --config");
  return word;
}

/// Logs what settings were taken for, if anything: of a host's processes the first does.
void tell(const std::string& note) {
  if (const auto local = local_rank(); !note.empty() && (!local || local->number == 0)) log::info(note);
}

/// Reads a file of keys, and what takes precedence over it.
void read_config_file(Config& config, const std::string& path, Command command, const std::function<void()>& then) {
  try {
    if (is_yaml(path)) {
      tell(read_settings(config, io::read_yaml(path), path, command, then));
    } else {
      read_settings(config, io::read_json(path, true), path);
      then();
    }
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    const bool is_named =
        is_yaml(path) || path.ends_with(".json") || dynamic_cast<const FormatError*>(&error) == nullptr;
    fail<ConfigError>("key config: ", std::string_view(error.what()),
                      is_named ? "" : "; a file whose name does not end in .yaml or .yml is read as JSON");
  }
}

/// Rejects unused words: all unknown keys at once, or the first other word.
[[noreturn]] void refuse_words(const std::vector<std::string>& words, Command command) {
  const auto is_key = [](std::string_view word) {
    return word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9');
  };
  const auto name_in = [](const std::string& word) { return word.substr(0, word.find('=')); };
  std::vector<UnknownKey> unknown;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    const bool is_foreign = equals != std::string::npos && find_foreign(name_in(words[i])) != nullptr;
    if (!is_key(words[i]) && !is_foreign) continue;
    UnknownKey& key = unknown.emplace_back(UnknownKey{words[i].substr(0, equals)});
    if (equals != std::string::npos) key.given = words[i].substr(equals + 1);
    if (equals == std::string::npos && i + 1 < words.size() && !is_key(words[i + 1])) key.given = words[i + 1];
  }
  if (unknown.empty()) {
    const std::string& word = words.front();
    const std::string name = name_in(word);
    const Key* const key = find_key(name);
    if (name.size() < word.size() && key != nullptr && (key->commands & command))
      fail<ConfigError>("given '", word, "', allowed: --", std::string_view(name), " ",
                        std::string_view(word).substr(name.size() + 1));
    fail<ConfigError>("given '", is_secret(name) && name.size() < word.size() ? name + "=..." : word,
                      "', allowed: keys as --key value or --key=value; a text with spaces needs quotes, several files "
                      "have commas between them, keys of a file --config or a name that ends in .json, .yaml or .yml");
  }
  refuse_unknown({}, unknown, command, concat("'lora ", name_of(command), " --help'"));
}

[[noreturn]] void refuse_command(std::string_view word) {
  std::vector<std::string_view> names;
  std::string list;
  for (const auto& text : command_texts) {
    names.push_back(name_of(text.command));
    list += concat(list.empty() ? "" : ", ", names.back());
  }
  names.emplace_back("launch");
  list += ", launch";
  if (word.empty()) fail<ConfigError>("no command; allowed: ", list, "; see 'lora --help'");
  for (const ForeignCommand& foreign : foreign_commands)
    if (foreign.name == word)
      fail<ConfigError>("unknown command ", word, "; here: ", foreign.here, "; allowed: ", list);
  const std::string_view nearest = nearest_name(word, names);
  fail<ConfigError>("unknown command ", word, "; allowed: ", list, nearest.empty() ? "" : "; nearest: ", nearest);
}

/// Rejects a key without its value: "--seed: 1 required INT missing".
[[noreturn]] void refuse_missing_value(std::string_view message) {
  const std::string_view name = message.substr(0, message.find(':'));
  if (const Key* key = name.starts_with("--") ? find_key(name.substr(2)) : nullptr)
    fail<ConfigError>("key ", key->name, ": given nothing, allowed: ", allowed(*key));
  fail<ConfigError>(name, ": given nothing, allowed: a file");
}

/// Rejects a key with one value that is given twice.
std::string only_value(std::string_view key, const CLI::Option& option) {
  const auto& values = option.results();
  if (values.size() > 1)
    fail<ConfigError>("key ", key, ": given ", values.size(), " times, as ",
                      CLI::detail::join(
                          values, [](const auto& value) { return value.empty() ? "alone" : value; }, " and "),
                      ", allowed: once");
  return values.front();
}

}  // namespace

Request read_command_line(int argc, const char* const* argv) {
  Request request;
  request.words.assign(argv, argv + argc);
  std::vector<std::string> words;  // in reverse, as CLI11 expects
  for (int i = argc - 1; i > 0; --i) {
    const std::string_view word = argv[i];
    const bool empty = word.ends_with('=');  // --key=
    const Key* const key = word.starts_with("--") ? find_key(word.substr(2, word.size() - (empty ? 3 : 2))) : nullptr;
    // A switch may stand alone, but is not turned on by a variable of the shell that is not set.
    if (key && is_switch(*key) && (empty || (i + 1 < argc && *argv[i + 1] == '\0')))
      fail<ConfigError>("key ", key->name, ": given nothing, allowed: ", allowed(*key));
    if (key && empty) {
      words.emplace_back();  // --key= is an empty value, and the next word is not its value
      words.emplace_back(word.substr(0, word.size() - 1));
    } else {
      words.emplace_back(word);
    }
  }

  // "help" asks for the page of what follows it.
  if (!words.empty() && words.back() == "help") {
    words.pop_back();
    words.insert(words.begin(), "--help");
  }

  CLI::App program("Fine-tunes language models, with LoRA or in full.", "lora");
  const auto formatter = std::make_shared<HelpPage>();
  formatter->label("OPTIONS", "--key value ...");
  formatter->label("SUBCOMMAND", "COMMAND");
  program.formatter(formatter);
  program.set_help_flag("-h,--help", "Prints this page");
  program.set_version_flag("--version", "lora " LORA_VERSION)->description("Prints the version");
  const auto* manual = program.add_flag("--man-page")->description("Prints the manual page, as man -l reads it");
  const auto* completion = program.add_flag("--bash-completion")
                               ->description("Prints a script by which bash completes commands, keys and values");
  program.footer("'lora COMMAND --help' and 'lora help COMMAND' print the keys of a command.");
  program.require_subcommand(0, 1)->allow_extras();
  for (const auto& text : command_texts) {
    auto* page = program.add_subcommand(std::string(name_of(text.command)), text.does)->group("Commands");
    page->formatter(formatter);
    page->set_help_flag("-h,--help", "Prints this page")->group("file");
    page->footer(
        concat("\nKeys are given as --key value, --key=value, or in the file of --config; a switch may stand alone "
               "or\ntake true or false; lists are comma-separated.\n\n  ",
               std::string_view(text.example)));
    page->allow_extras();
    // As soon as the command is read: CLI11 compares each key with all before it, which for every command takes as long
    // as starting the program.
    page->preparse_callback([page, command = text.command](std::size_t) { add_options(*page, command); });
  }

  program.add_subcommand("launch", launch_does)->group("Commands");  // for its line; the command is read elsewhere
  try {
    program.parse(words);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = program.get_subcommands();
    const auto extras = program.remaining();
    if (chosen.empty() && !extras.empty()) refuse_command(extras.front());
    request.answer = tidy(chosen.empty() ? program.help() : chosen.front()->help("lora"));
    return request;
  } catch (const CLI::CallForVersion& version) {
    request.answer = std::string(version.what()) + "\n";
    return request;
  } catch (const CLI::ArgumentMismatch& error) {
    refuse_missing_value(error.what());
  } catch (const CLI::ParseError& error) {
    fail<ConfigError>(std::string_view(error.what()));
  }

  const auto chosen = program.get_subcommands();
  const auto extras = program.remaining();
  if (*manual || *completion) {  // as --version, whatever else was given
    request.answer = *manual ? manual_page() : bash_completion();
    return request;
  }
  if (chosen.empty()) refuse_command(extras.empty() ? "" : extras.front());
  const auto text = std::find_if(std::begin(command_texts), std::end(command_texts), [&](const CommandText& candidate) {
    return name_of(candidate.command) == chosen.front()->get_name();
  });
  request.command = text->command;
  const auto place_of = [&](const std::string& word) {
    return std::find(request.words.begin(), request.words.end(), word);
  };
  if (!extras.empty() && place_of(extras.front()) < place_of(std::string(name_of(request.command))))
    fail<ConfigError>("given '", extras.front(), "' before the command; allowed: lora ", name_of(request.command),
                      " with its keys behind it");
  auto unknown = program.remaining(true);
  if (request.command == report_command && !unknown.empty()) {
    // Words that are no keys are folders of runs.
    const auto folders = std::stable_partition(unknown.begin(), unknown.end(),
                                               [](const std::string& word) { return word.starts_with("--"); });
    request.config.runs.assign(folders, unknown.end());
    unknown.erase(folders, unknown.end());
  }
  const CLI::App& page = *chosen.front();
  request.config_file = take_config_word(unknown, request.words);  // lora train run.yaml
  if (!unknown.empty()) refuse_words(unknown, request.command);
  const CLI::Option& config = *page.get_option("--config");
  if (config.count() > 0) {
    if (!request.config_file.empty())
      fail<ConfigError>("key config: given 2 times, as ", std::string_view(config.results().front()), " and ",
                        std::string_view(request.config_file), " without a key, allowed: once");
    request.config_file = only_value("config", config);
  }
  const auto set_keys = [&] {
    for (const Key& key : keys()) {
      if (!(key.commands & request.command)) continue;
      const CLI::Option* option = page.get_option("--" + std::string(key.name));
      if (option->count() == 0) continue;
      if (is_list(key)) {
        set_from_text(request.config, key, CLI::detail::join(option->results(), ","));
      } else {
        set_from_text(request.config, key, only_value(key.name, *option));
      }
    }
  };
  if (config.count() > 0 || !request.config_file.empty()) {
    read_config_file(request.config, request.config_file, request.command, set_keys);
  } else {
    set_keys();
  }
  if (request.command == train_command) request.config.ranks = launched().processes;
  if (request.command == plan_command) request.config.ranks = request.config.devices * request.config.nodes;
  tell(find_datasets(request.config, request.command));
  apply_deepspeed(request.config, request.command);
  validate(request.config, request.command);
  return request;
}
