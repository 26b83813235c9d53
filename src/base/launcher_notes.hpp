// launcher_notes.hpp: one byte for `weft run --elastic`, which tells ranks that end by themselves from those that end
// because of an error of another rank.
#pragma once
#include <cstddef>

namespace weft::internal {

// joined: the rank is a member of a communicator. told: a call has returned an error to it after which it may end.
enum class LauncherNote : unsigned char { none, joined, told };

// Writes this process's note, if the launcher has asked for one. A file that is gone is ignored. Thread-safe.
void note_for_launcher(LauncherNote note);
// For the launcher: the note of a rank in the file.
LauncherNote read_launcher_note(int descriptor, size_t rank);

}  // namespace weft::internal
