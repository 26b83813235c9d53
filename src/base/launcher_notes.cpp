#include "src/base/launcher_notes.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "src/base/fd.hpp"
#include "src/base/options.hpp"

namespace weft::internal {

void note_for_launcher(LauncherNote note) {
    const Options& own = options();
    if (own.launcher_notes.empty() || own.rank < 0) return;
    const Fd file = Fd::open(own.launcher_notes, O_WRONLY);
    if (file) (void)!pwrite(file.number(), &note, sizeof note, own.rank);
}

LauncherNote read_launcher_note(int descriptor, size_t rank) {
    LauncherNote note = LauncherNote::none;
    return pread(descriptor, &note, sizeof note, off_t(rank)) == sizeof note ? note : LauncherNote::none;
}

}  // namespace weft::internal
