/* fatbins.S: the device code as bytes of the library. meson.build assembles it in a step of its own, with the fatbins as
 * that step's inputs: as a plain source of the library it would not be assembled again when they change. */
    .macro embed name, file
    .globl weft_\name\()_fatbin_begin, weft_\name\()_fatbin_end
    .hidden weft_\name\()_fatbin_begin, weft_\name\()_fatbin_end
    .balign 64
weft_\name\()_fatbin_begin:
    .incbin "\file"
weft_\name\()_fatbin_end:
    .endm

    .section .rodata
    embed packet, "packet.fatbin"
    embed peer, "peer.fatbin"
    embed step, "step.fatbin"
    embed message, "message.fatbin"
    embed access, "access.fatbin"
    embed optimizer, "optimizer.fatbin"
    embed convert, "convert.fatbin"
    embed codec, "codec.fatbin"
    embed hook, "hook.fatbin"
    embed multicast, "multicast.fatbin"

    .section .note.GNU-stack, "", %progbits
