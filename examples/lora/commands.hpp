#pragma once

#include "command_line.hpp"

/// Each runs one command to its end. Results go to standard output, words to standard error; what goes wrong is thrown.
/// The exit status: 0, or 128 + the signal that ended a training early.
int run_train(Request& request);
int run_eval(Request& request);
int run_generate(Request& request);
int run_merge(Request& request);
int run_tokenize(Request& request);
