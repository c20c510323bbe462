#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

/// The options of `lora launch`; numbers below 0 are those that were not given.
struct LaunchOptions {
  int processes = 0;
  int hosts = 1, node = -1;
  std::string address;
  int port = -1;

  /// Has the page of help tell of them, and read them into this.
  void describe(CLI::App& page);
};

/// `lora launch`, where the command line is one: starts several processes of a command, by mpirun, and says that
/// command; or where they meet at an address, by itself. Passes signals on to them, and ends as they do.
/// Of one process it becomes that.
///
/// Returns   the page of help, where that is asked for; nothing of another command line
/// Throws   ConfigError
std::optional<std::string> launch(int argc, const char* const* argv);

/// What the page of all commands says of it.
inline constexpr const char* launch_does =
    "Starts several processes of train, by mpirun or one for each NPU: its options, then train with its keys.";
