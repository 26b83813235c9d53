// subprocess.hpp: a real process under test: its output, its end, and a way to wait for what it says.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/patience.hpp"

namespace weft::internal::test {

// The process's state in /proc, one character: 'R', 'S', 'T' stopped, 'Z' dead but not reaped; 'X' if there is no such
// process.
inline char process_state(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::stringstream text;
    text << file.rdbuf();
    size_t name_end = text.str().rfind(')');
    return name_end == std::string::npos ? 'X' : text.str()[name_end + 2];
}
inline bool is_gone(pid_t pid) { return process_state(pid) == 'X' || process_state(pid) == 'Z'; }

// Starts at once. WEFT_* and NCCL_* of our own environment are left out; default signal dispositions. Thread-bound.
class Subprocess {
  public:
    explicit Subprocess(std::vector<std::string> arguments, std::vector<std::string> variables = {},
                        const std::string& input = "") {
        int source = memory(input);
        output_ = memory("");
        error_ = memory("");
        for (char** entry = environ; *entry != nullptr; ++entry) {
            std::string variable = *entry;
            if (variable.rfind("WEFT_", 0) != 0 && variable.rfind("NCCL_", 0) != 0) variables.push_back(variable);
        }
        // A process that is slow is not dead. Of two values the first counts.
        variables.push_back("WEFT_HEARTBEAT_MS=120000");
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, source, 0);
        posix_spawn_file_actions_adddup2(&actions, output_, 1);
        posix_spawn_file_actions_adddup2(&actions, error_, 2);
        posix_spawnattr_t attributes;
        posix_spawnattr_init(&attributes);
        sigset_t all, none;
        sigfillset(&all);
        sigemptyset(&none);
        posix_spawnattr_setsigdefault(&attributes, &all);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
        int error = posix_spawnp(&pid_, arguments[0].c_str(), &actions, &attributes, pointers(arguments).data(),
                                 pointers(variables).data());
        posix_spawnattr_destroy(&attributes);
        posix_spawn_file_actions_destroy(&actions);
        close(source);
        if (error != 0) throw std::runtime_error("cannot start " + arguments[0]);
    }
    Subprocess(const Subprocess&) = delete;
    Subprocess& operator=(const Subprocess&) = delete;
    ~Subprocess() {
        if (pid_ > 0 && !ended_) {
            ::kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(output_);
        close(error_);
    }

    pid_t pid() const { return pid_; }
    void kill(int signal) { ::kill(pid_, signal); }
    // Waits until it has ended by itself. False: it hangs.
    bool ends() const {
        return eventually([this] { return is_gone(pid_); });
    }
    // Ends a hanging process by a signal at which a sanitizer may print its stack.
    void end() {
        kill(SIGABRT);
        if (!ends()) kill(SIGKILL);
    }
    // The status as in a shell: 128 + signal if one ended it.
    int wait() {
        int status = 0;
        note_queued(pid_);
        waitpid(pid_, &status, 0);
        ended_ = true;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    std::string output() const { return content(output_); }
    std::string error() const { return content(error_); }
    // Waits until the output has the text so often, or the process has ended without.
    bool says(const std::string& text, int times = 1) const {
        bool said = false;
        (void)eventually([&] {
            const bool over = is_gone(pid());
            int count = 0;
            const std::string all = output();
            for (size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++count;
            said = count >= times;
            return said || over;
        });
        return said;
    }

  private:
    // A file in memory: a process never waits for us to read.
    static int memory(const std::string& content) {
        int file = memfd_create("subprocess", MFD_CLOEXEC);
        if (file < 0 || write(file, content.data(), content.size()) != ssize_t(content.size())) {
            throw std::runtime_error("no memory file");
        }
        lseek(file, 0, SEEK_SET);
        // Several processes write: without this they share an offset that, for a memory file, nothing locks.
        fcntl(file, F_SETFL, O_APPEND);
        return file;
    }
    static std::string content(int file) {
        std::string text;
        char buffer[4096];
        ssize_t count = 0;
        while ((count = pread(file, buffer, sizeof buffer, off_t(text.size()))) > 0) text.append(buffer, size_t(count));
        return text;
    }
    static std::vector<char*> pointers(std::vector<std::string>& words) {
        std::vector<char*> all;
        for (std::string& word : words) all.push_back(word.data());
        all.push_back(nullptr);
        return all;
    }

    pid_t pid_ = -1;
    bool ended_ = false;
    int output_ = -1;
    int error_ = -1;
};

// The output and the status of a process that has ended.
struct ProcessResult {
    int status;
    std::string output;
    std::string error;
};
inline ProcessResult run(std::vector<std::string> arguments, std::vector<std::string> variables = {},
                         const std::string& input = "") {
    Subprocess process(std::move(arguments), std::move(variables), input);
    int status = process.wait();
    return {status, process.output(), process.error()};
}

inline std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::stringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

}  // namespace weft::internal::test
