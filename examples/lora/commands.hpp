#pragma once

#include "command_line.hpp"

/// Each runs one command. Results go to standard output, messages to standard error; errors are thrown. Returns the
/// exit status: 0, or 128 + the signal that stopped training.
int run_train(Request& request);
int run_eval(Request& request);
int run_generate(Request& request);
int run_merge(Request& request);
int run_tokenize(Request& request);
