#pragma once

#include <optional>
#include <string>

/// `lora launch`, where the command line is one: starts several processes of a command on this machine, by becoming
/// mpirun, and says the command. Returns   the page of help, where that is asked for; nothing of another command line
/// Throws   ConfigError
std::optional<std::string> launch(int argc, const char* const* argv);

/// What the page of all commands says of it.
inline constexpr const char* launch_does =
    "Starts several processes of train on this machine, by mpirun: its options, then train with its keys.";
