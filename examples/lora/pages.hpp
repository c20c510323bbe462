#pragma once

#include <string>

/// The manual page lora(1), in the language of man.
std::string manual_page();

/// A script by which bash completes the program's commands, keys and values.
std::string bash_completion();
