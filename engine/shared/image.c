/* Code images as the driver takes them: ELF by its header (System V ABI), fat binaries by theirs (fatbinary_section.h of the
 * CUDA toolkit gives the wrapper; the container behind it begins with magic, version, size of the header, size of the rest),
 * anything else is PTX text. */
#define _GNU_SOURCE
#include "image.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

#define FATBIN_MAGIC 0xba55ed50u

struct fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};

/* The end of what a table or section covers; 0 where that overflows. */
static uint64_t end_of(uint64_t offset, uint64_t bytes) {
    return offset > UINT64_MAX - bytes ? 0 : offset + bytes;
}

static size_t elf_bytes(const unsigned char *image, size_t room) {
    Elf64_Ehdr head;
    if (room < sizeof head) return 0;
    memcpy(&head, image, sizeof head);
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB) return 0;
    uint64_t end = sizeof head, sections = end_of(head.e_shoff, (uint64_t)head.e_shnum * sizeof(Elf64_Shdr));
    uint64_t segments = end_of(head.e_phoff, (uint64_t)head.e_phnum * sizeof(Elf64_Phdr));
    if (head.e_shnum && (head.e_shentsize != sizeof(Elf64_Shdr) || !sections || sections > room)) return 0;
    if (head.e_phnum && (head.e_phentsize != sizeof(Elf64_Phdr) || !segments || segments > room)) return 0;
    if (head.e_shnum && sections > end) end = sections;
    if (head.e_phnum && segments > end) end = segments;
    for (unsigned i = 0; i < head.e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, image + head.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) continue;
        uint64_t last = end_of(section.sh_offset, section.sh_size);
        if ((!last && section.sh_size) || last > room) return 0;
        if (last > end) end = last;
    }
    return (size_t)end;
}

size_t image_bytes(const void *image, size_t room) {
    struct fatbin fat;
    uint32_t magic;
    if (room < sizeof magic) return 0;
    const unsigned char *at = image;
    if (at[0] && at[1] && at[2] && at[3]) { /* a text may be shorter than four bytes */
        memcpy(&magic, image, sizeof magic);
        if (magic == FATBIN_MAGIC) {
            if (room < sizeof fat) return 0;
            memcpy(&fat, image, sizeof fat);
            uint64_t bytes = end_of(fat.bytes, fat.header_bytes);
            return fat.header_bytes >= sizeof fat && bytes && bytes <= room ? (size_t)bytes : 0;
        }
        if (!memcmp(image, ELFMAG, SELFMAG)) return elf_bytes(image, room);
    }
    size_t length = room == SIZE_MAX ? strlen(image) : strnlen(image, room);
    return length && length < room ? length + 1 : 0;
}
