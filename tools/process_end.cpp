#include "tools/process_end.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace weft::internal::tools {

std::string signal_text(int signal) {
    const char* name = sigabbrev_np(signal);
    return name != nullptr ? fmt::format("signal {} (SIG{})", signal, name) : fmt::format("signal {}", signal);
}

std::string end_text(int status) {
    if (WIFEXITED(status)) return fmt::format("exited with status {}", WEXITSTATUS(status));
    return fmt::format("was killed by {}{}", signal_text(WTERMSIG(status)), WCOREDUMP(status) ? ", core dumped" : "");
}

int exit_status_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

bool asks_to_end(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT; }

std::string host_name() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 && name[0] != 0 ? name : "?";
}

}  // namespace weft::internal::tools
