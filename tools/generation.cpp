#include "tools/generation.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/launcher_notes.hpp"

namespace weft::internal::tools {

Status Generation::open_reports() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fail(error::system_call, "a pipe for the ranks cannot be made: {}", errno_text(errno));
    report_source = Fd(ends[0]);
    report_target = Fd(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    notes = Fd(memfd_create("weft-launcher-notes", MFD_CLOEXEC));
    if (!notes || ftruncate(notes.number(), off_t(ranks.size())) != 0)
        return fail(error::system_call, "a file for notes of the ranks cannot be made: {}", errno_text(errno));
    return ok();
}

void Generation::signal(int signal) {
    signalled = true;
    for (const RankProcess& process : ranks) {
        if (process.pid > 0) kill(process.pid, signal);
    }
}

std::string Generation::notes_path() const { return fmt::format("/proc/{}/fd/{}", getpid(), notes.number()); }

bool Generation::note_end(int rank, int status) {
    const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    // A rank that left a status without an error of another rank is lost, if it used Weft: others may just follow.
    const bool by_itself =
        WIFSIGNALED(status) || (failed && read_launcher_note(notes.number(), size_t(rank)) == LauncherNote::joined);
    if (by_itself && !signalled) ++failure.lost;
    if (failed && !exit_status) failure.lived_s = double(now_us() - begun_us) / 1e6;
    return failed;
}

std::string Generation::running_text() const {
    std::string text = running == 1 ? "rank" : "ranks";
    int named = 0;
    for (size_t rank = 0; rank < ranks.size() && named < 3; ++rank) {
        if (ranks[rank].pid > 0) text += fmt::format("{} {}", named++ == 0 ? "" : ",", rank);
    }
    if (running > named) text += fmt::format(" and {} more", running - named);
    return text;
}

}  // namespace weft::internal::tools
