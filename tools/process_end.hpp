// process_end.hpp: how a process ended, as text and as the status that a shell returns; where it ran.
#pragma once
#include <string>

namespace weft::internal::tools {

// "signal 11 (SIGSEGV)".
std::string signal_text(int signal);
// Of a status of waitpid().
std::string end_text(int status);
// The same, for exit(): 128 + signal if a signal ended the process.
int exit_status_of(int status);
// Whether a user or a batch system sends this signal to end a job.
bool asks_to_end(int signal);
// Of this machine; "?" if it has none.
std::string host_name();

}  // namespace weft::internal::tools
