#include "tools/child.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/environment.hpp"

namespace weft::internal::tools {

static constexpr useconds_t nap_us = 5000;

static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
}

Result<Child> Child::start(const std::vector<std::string>& words, const std::vector<std::string>& variables) {
    Fd output = Fd::memory("output", 0), error = Fd::memory("error", 0);
    if (!output || !error) return fail(error::system_call, "a file in memory cannot be made: {}", errno_text(errno));
    std::vector<std::string> arguments = words, all = variables;
    // Of two values the first counts.
    for (std::string& each : whole_environment()) all.push_back(std::move(each));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output.number(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, error.number(), STDERR_FILENO);
    pid_t pid = -1;
    const int failed =
        posix_spawnp(&pid, words[0].c_str(), &actions, nullptr, pointers(arguments).data(), pointers(all).data());
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) return fail(error::system_call, "{} cannot be started: {}", words[0], errno_text(failed));
    return Child(pid, std::move(output), std::move(error));
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::move(other.output_)),
      error_(std::move(other.error_)),
      status_(other.status_),
      ended_(other.ended_) {}

Child::~Child() {
    if (pid_ <= 0 || ended_) return;
    kill();
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
}

void Child::kill() const {
    if (!ended_) ::kill(pid_, SIGKILL);
}

bool Child::ended() {
    if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
}

bool Child::wait(int64_t limit_ms) {
    const int64_t until = now_us() + limit_ms * 1000;
    while (!ended() && now_us() < until) usleep(nap_us);
    if (ended_) return true;
    kill();
    while (!ended()) usleep(nap_us);
    return false;
}

std::string Child::text_of(const Fd& file) {
    std::string text;
    char buffer[65536];
    for (ssize_t length; (length = pread(file.number(), buffer, sizeof buffer, off_t(text.size()))) > 0;)
        text.append(buffer, size_t(length));
    return text;
}

}  // namespace weft::internal::tools
