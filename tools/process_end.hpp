// process_end.hpp: how a process ended, as text and as the status that a shell returns.
#pragma once
#include <string>

namespace weft::internal::tools {

// "signal 11 (SIGSEGV)".
std::string signal_text(int signal);
// Of a status of waitpid().
std::string end_text(int status);
// The same, for exit(): 128 + signal if a signal ended the process.
int exit_status_of(int status);

}  // namespace weft::internal::tools
