kernel-1-ctx_0x5581d20f4ac0.traceg.xz
kernel-2-ctx_0x5581d20f4ac0.traceg.xz
kernel-3-ctx_0x5581d20f4ac0.traceg.xz
kernel-4-ctx_0x5581d20f4ac0.traceg.xz
kernel-5-ctx_0x5581d20f4ac0.traceg.xz
kernel-6-ctx_0x5581d20f4ac0.traceg.xz
kernel-7-ctx_0x5581d20f4ac0.traceg.xz
kernel-8-ctx_0x5581d20f4ac0.traceg.xz
