#pragma once

#include "command_line.hpp"

/// Each runs one command. Results go to standard output, messages to standard error; errors are thrown. Returns the
/// exit status: 0, 128 + the signal that stopped training or a chat, or 1 of a doctor who found what can't work, or of
/// a plan that does not fit.
int run_train(Request& request);
int run_eval(Request& request);
int run_generate(Request& request);
int run_chat(Request& request);
int run_merge(Request& request);
int run_export(Request& request);
int run_tokenize(Request& request);
int run_doctor(Request& request);
int run_plan(Request& request);
int run_report(Request& request);
